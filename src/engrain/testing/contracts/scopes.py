"""The promises of scopes: named in full by every caller, keyed at random, secret each to itself."""

from __future__ import annotations

from typing import Any

import pytest

from engrain.contracts import limits
from engrain.contracts.errors import EngrainError, InvalidValue, LimitExceeded
from engrain.contracts.scope import Scope
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, BEN, START_US, begin
from engrain.testing.engines import Engine, SqliteMemoryEngine, Stores, open_stores
from engrain.testing.races import RACERS, Racer, Racers

WRONG = ("", " ", "\t\n", "*", "%", "?", "ana*", " ana", "ana ", "a\0b", "a\ud800b")


class TestNaming:
    """`Scope(org, user)`: no blank, no wildcard, no default."""

    @pytest.mark.invariant("INV-20")
    @pytest.mark.parametrize("wrong", WRONG)
    def test_blank_wildcard_and_unclean_parts_are_refused(self, wrong: str) -> None:
        for parts in ({"org": wrong, "user": "ana"}, {"org": "acme", "user": wrong}):
            with pytest.raises(InvalidValue) as refused:
                Scope(**parts)
            assert refused.value.field in parts

    def test_parts_are_bounded_in_bytes(self) -> None:
        longest = "é" * (limits.scope_part_bytes_max // 2)
        assert Scope(org=longest, user="ana").org == longest
        with pytest.raises(LimitExceeded) as refused:
            Scope(org=longest + "a", user="ana")
        assert refused.value.most == limits.scope_part_bytes_max == 256

    def test_there_is_no_default_scope(self, stores: Stores) -> None:
        with pytest.raises(TypeError):
            Scope(org="acme")  # type: ignore[call-arg]
        wrong: tuple[Any, ...] = (None, "ana", ("acme", "ana"))
        for scope in wrong:
            with pytest.raises(InvalidValue):
                begin(stores, scope)
            with pytest.raises(InvalidValue):
                stores.sessions.list(scope)

    @pytest.mark.invariant("INV-26")
    def test_name_shows_in_no_repr(self) -> None:
        assert "ana" not in repr(ANA)
        assert "acme" not in repr(ANA)

    @pytest.mark.invariant("INV-20")
    def test_names_that_look_alike_are_scopes_of_their_own(self, stores: Stores) -> None:
        alike = ("ana", "Ana", "ána", "a\u0301na", "ana.", "ａna")
        for user in alike:
            begin(stores, Scope(org="acme", user=user), title=f"of {user}")
        for user in alike:
            (found,) = stores.sessions.list(Scope(org="acme", user=user)).items
            assert found.title == f"of {user}"

    @pytest.mark.invariant("INV-20")
    def test_parts_are_not_joined(self, stores: Stores) -> None:
        begin(stores, Scope(org="a/b", user="c"))
        for org, user in (("a", "b/c"), ("a/b/c", "c"), ("c", "a/b")):
            assert stores.sessions.list(Scope(org=org, user=user)).items == ()


class TestKeys:
    """What stands behind a scope."""

    def test_key_is_a_random_number_of_63_bits(self, stores: Stores) -> None:
        keys = []
        for number in range(40):
            keys.append(stores.scopes.ensure(Scope(org="acme", user=f"u{number}")).key.scope)
        assert len(set(keys)) == 40
        assert all(0 < key < 2**63 for key in keys)
        assert max(keys) > 2**60

    def test_each_scope_has_a_secret_of_its_own(self, stores: Stores) -> None:
        ours, theirs = stores.scopes.ensure(ANA), stores.scopes.ensure(BEN)
        assert len(ours.secret) == 32
        assert ours.secret != theirs.secret

    def test_same_name_has_another_secret_in_another_database(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        with open_stores(SqliteMemoryEngine(), clock) as others:
            ours, theirs = stores.scopes.ensure(ANA), others.scopes.ensure(ANA)
        assert ours.secret != theirs.secret
        assert ours.key != theirs.key

    def test_scope_stays_what_it_was(self, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as first, open_stores(shared_engine) as second:
            known = first.scopes.ensure(ANA)
            assert second.scopes.find(ANA) == second.scopes.ensure(ANA) == known
        with open_stores(shared_engine) as later:
            assert later.scopes.find(ANA) == known

    def test_reading_makes_no_scope(self, stores: Stores, engine: Engine) -> None:
        for verb in (
            lambda: stores.sessions.list(ANA),
            lambda: stores.sessions.find_source(ANA, ("claude", "c1")),
            lambda: stores.audit.list(ANA),
            lambda: stores.audit.verify(ANA),
            lambda: stores.episodes.search(ANA, "anything"),
        ):
            verb()
        assert stores.scopes.find(ANA) is None
        assert engine.alter("SELECT count(*) FROM scopes") == [(0,)]

    def test_refused_start_makes_no_session(self, stores: Stores, engine: Engine) -> None:
        with pytest.raises(EngrainError):
            begin(stores, title=" ")
        assert engine.alter("SELECT count(*) FROM sessions") == [(0,)]

    def test_first_write_makes_the_scope_in_its_own_time(
        self, stores: Stores, engine: Engine
    ) -> None:
        begin(stores)
        begin(stores)
        rows = engine.alter("SELECT org, user_name, created_at FROM scopes")
        assert rows == [("acme", "ana", START_US)]


class TestScopeRaces:
    """Six processes write to a scope that nobody has written to before."""

    def test_first_writers_agree_on_one_scope(self, race: Racers, shared_engine: Engine) -> None:
        for number in range(5):
            assert len(set(race.race(race_ensure, f"u{number}"))) == 1
        assert shared_engine.alter("SELECT count(*) FROM scopes") == [(5,)]
        assert len(race.race(race_ensure, "u0")) == RACERS


def race_ensure(racer: Racer, user: str) -> tuple[int, bytes]:
    known = racer.stores.scopes.ensure(Scope(org="acme", user=user))
    return known.key.scope, known.secret
