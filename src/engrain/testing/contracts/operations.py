"""The promises of operation ids: one id, one effect, whatever is repeated, lost, late or raced.

Every promise is asked of every verb that takes an operation id.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID, uuid4

import pytest

from engrain.contracts import limits
from engrain.contracts.errors import (
    InvalidValue,
    NotFound,
    OperationMismatch,
    OperationTooOld,
    Uncertain,
)
from engrain.contracts.ids import OperationId, SessionId
from engrain.contracts.scope import Scope
from engrain.contracts.workspace import DEFAULT_WORKSPACE
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, BEN, START_US, hold, say
from engrain.testing.contracts.operation_verbs import (
    ONE_EFFECT,
    Author,
    begin_author,
    count_rows,
    directory,
    effects_since,
    session_id_of,
)
from engrain.testing.engines import Engine, Stores, open_stores
from engrain.testing.faults import Faults


@pytest.fixture
def author(stores: Stores) -> Author:
    return begin_author(stores)


def made_at(time_us: int) -> OperationId:
    """An operation id of version 7 that says it was made then."""
    return OperationId(UUID(int=time_us // 1_000 << 80 | 7 << 76 | 2 << 62 | uuid4().int % 2**62))


def fresh() -> OperationId:
    return made_at(START_US)


@pytest.mark.invariant("INV-13")
class TestRepeating:
    """The same id with the same request."""

    def test_repeat_returns_the_first_receipt_and_does_nothing(
        self, author: Author, engine: Engine, clock: HeldClock
    ) -> None:
        for verb, effect in ONE_EFFECT.items():
            operation, before = fresh(), count_rows(engine)
            first = author.do(verb, verb, operation)
            for _ in range(3):
                clock.advance(limits.SECOND_US)
                assert author.do(verb, verb, operation) == first
            assert effects_since(engine, before) == effect

    def test_receipt_of_an_append_is_the_first_after_everything_that_came_later(
        self, author: Author, stores: Stores
    ) -> None:
        operation = fresh()
        first = author.append("once", operation)
        assert first.operation_id == operation
        author.append("later", None)
        stores.transcript.redact(ANA, author.written.id, [1])
        assert author.lease is not None
        stores.leases.release(author.lease)
        assert author.append("once", operation) == first
        author.lease = hold(stores, author.written)
        assert author.append("once", operation) == first
        assert author.append("last", None).first_sequence == 3

    def test_repeated_relink_does_not_undo_a_later_one(self, author: Author) -> None:
        operation = fresh()
        author.do("relink", "first", operation)
        author.do("relink", "second", None)
        author.do("relink", "first", operation)
        moved = author.stores.sessions.read(ANA, author.moving.id)
        assert moved.workspace == directory("second")

    def test_repeated_fork_is_the_first_whatever_became_of_its_source(
        self, author: Author, stores: Stores, engine: Engine
    ) -> None:
        operation = fresh()
        first = author.do("fork", "once", operation)
        say(stores, hold(stores, author.source), "grown since")
        engine.alter("UPDATE events SET kind = 'system'")
        assert author.do("fork", "once", operation) == first

    def test_calls_without_an_id_are_each_done(self, author: Author, engine: Engine) -> None:
        for verb, effect in ONE_EFFECT.items():
            before = count_rows(engine)
            for words in ("one", "two"):
                author.do(verb, words, None)
            expected = {table: 2 * count for table, count in effect.items()}
            assert effects_since(engine, before) == expected

    def test_repeat_after_a_restart_returns_the_first_receipt(self, shared_engine: Engine) -> None:
        operations = {verb: fresh() for verb in ONE_EFFECT}
        with open_stores(shared_engine, HeldClock(START_US)) as stores:
            author = begin_author(stores)
            first = {verb: author.do(verb, verb, operations[verb]) for verb in ONE_EFFECT}
            assert author.lease is not None
            stores.leases.release(author.lease)
        before = count_rows(shared_engine)
        with open_stores(shared_engine, HeldClock(START_US)) as stores:
            author.stores = stores
            author.lease = hold(stores, author.written)
            again = {verb: author.do(verb, verb, operations[verb]) for verb in ONE_EFFECT}
        assert effects_since(shared_engine, before) == {}
        assert again["append"] == first["append"]
        assert [session_id_of(again[verb]) for verb in ONE_EFFECT] == [
            session_id_of(first[verb]) for verb in ONE_EFFECT
        ]


@pytest.mark.invariant("INV-13")
class TestMismatch:
    """The same id with anything else."""

    def test_another_request_is_refused_and_does_nothing(
        self, author: Author, engine: Engine
    ) -> None:
        for verb in ONE_EFFECT:
            operation = fresh()
            author.do(verb, "one", operation)
            before = count_rows(engine)
            with pytest.raises(OperationMismatch) as refused:
                author.do(verb, "quince", operation)
            assert not refused.value.retryable
            assert "quince" not in repr(refused.value.facts())
            assert effects_since(engine, before) == {}

    def test_another_verb_is_refused_and_does_nothing(self, author: Author, engine: Engine) -> None:
        for verb in ONE_EFFECT:
            operation = fresh()
            author.do(verb, "words", operation)
            before = count_rows(engine)
            others = [other for other in ONE_EFFECT if other != verb]
            assert [author.refuses(other, "words", operation) for other in others] == [True] * 4
            assert effects_since(engine, before) == {}

    def test_another_session_is_another_request(self, author: Author, stores: Stores) -> None:
        operations = {verb: fresh() for verb in ONE_EFFECT}
        for verb, operation in operations.items():
            author.do(verb, "words", operation)
        other = begin_author(stores)
        for verb in ("append", "set_title", "fork", "relink"):
            assert other.refuses(verb, "words", operations[verb])

    def test_source_that_is_known_does_not_hide_another_request(
        self, author: Author, stores: Stores
    ) -> None:
        operation, source = fresh(), ("claude", "one")
        first = stores.sessions.start(ANA, DEFAULT_WORKSPACE, source=source)
        author.do("set_title", "words", operation)
        with pytest.raises(OperationMismatch):
            stores.sessions.start(ANA, DEFAULT_WORKSPACE, source=source, operation_id=operation)
        again = stores.sessions.start(ANA, DEFAULT_WORKSPACE, source=source, operation_id=fresh())
        assert again == first

    @pytest.mark.invariant("INV-20")
    def test_scopes_are_apart(self, author: Author, stores: Stores, engine: Engine) -> None:
        theirs = begin_author(stores, BEN)
        for verb, effect in ONE_EFFECT.items():
            operation = fresh()
            ours = author.do(verb, "words", operation)
            before = count_rows(engine)
            assert session_id_of(theirs.do(verb, "words", operation)) != session_id_of(ours)
            assert effects_since(engine, before) == effect
            assert author.do(verb, "words", operation) == ours

    def test_id_of_a_request_that_was_refused_is_free(self, author: Author, engine: Engine) -> None:
        for verb, effect in ONE_EFFECT.items():
            operation, before = fresh(), count_rows(engine)
            with pytest.raises(InvalidValue):
                author.do(verb, " ", operation)
            assert effects_since(engine, before) == {}
            author.do(verb, "words", operation)
            assert effects_since(engine, before) == effect

    def test_id_of_a_request_for_nothing_is_free(self, author: Author, stores: Stores) -> None:
        operation = fresh()
        with pytest.raises(NotFound):
            stores.sessions.set_title(ANA, SessionId(uuid4()), "words", operation_id=operation)
        author.do("set_title", "words", operation)
        assert stores.sessions.read(ANA, author.source.id).title == "words"


@pytest.mark.invariant("INV-13")
class TestAge:
    """Outcomes are remembered for thirty days at the least."""

    def test_id_from_before_the_retention_floor_is_never_run(
        self, author: Author, engine: Engine
    ) -> None:
        floor_us = START_US - limits.operation_retention_us
        assert limits.operation_retention_us == 30 * limits.DAY_US
        for verb, effect in ONE_EFFECT.items():
            before = count_rows(engine)
            with pytest.raises(OperationTooOld):
                author.do(verb, verb, made_at(floor_us - 1_000))
            assert effects_since(engine, before) == {}
            author.do(verb, verb, made_at(floor_us))
            assert effects_since(engine, before) == effect

    def test_id_grows_too_old_as_time_passes(self, author: Author, clock: HeldClock) -> None:
        operation = fresh()
        clock.advance(limits.operation_retention_us + 1)
        with pytest.raises(OperationTooOld):
            author.do("start", "late", operation)

    def test_id_that_is_known_is_answered_however_old_it_grew(
        self, author: Author, engine: Engine, clock: HeldClock
    ) -> None:
        operations = {verb: fresh() for verb in ONE_EFFECT}
        first = {verb: author.do(verb, verb, operations[verb]) for verb in ONE_EFFECT}
        before = count_rows(engine)
        clock.advance(2 * limits.operation_retention_us)
        for verb, operation in operations.items():
            assert session_id_of(author.do(verb, verb, operation)) == session_id_of(first[verb])
            assert author.refuses(verb, "another", operation)
        assert author.append("append", operations["append"]) == first["append"]
        assert effects_since(engine, before) == {}

    def test_id_from_the_future_or_without_a_time_has_one_effect(
        self, author: Author, engine: Engine, clock: HeldClock
    ) -> None:
        ids = (made_at(START_US + 3_650 * limits.DAY_US), OperationId(uuid4()))
        for operation in ids:
            before = count_rows(engine)
            first = author.do("start", "early", operation)
            clock.advance(2 * limits.operation_retention_us)
            assert author.do("start", "early", operation) == first
            assert effects_since(engine, before) == ONE_EFFECT["start"]


@pytest.mark.invariant("INV-13")
class TestLostAcknowledgement:
    """An error from COMMIT is `Uncertain`, and says what to repeat."""

    def test_repeat_counts_once_whether_it_was_committed_or_not(
        self, author: Author, engine: Engine
    ) -> None:
        for point, is_kept in (("commit.before", False), ("commit.after", True)):
            for verb, effect in ONE_EFFECT.items():
                operation, before = fresh(), count_rows(engine)
                words = f"{verb} {point}"
                lost = _lose(partial(author.do, verb, words, operation), point)
                assert lost.operation_id == operation
                assert effects_since(engine, before) == (effect if is_kept else {})
                author.do(verb, words, operation)
                assert effects_since(engine, before) == effect

    def test_id_that_nobody_gave_is_told_and_can_be_repeated(
        self, author: Author, engine: Engine
    ) -> None:
        for verb, effect in ONE_EFFECT.items():
            before = count_rows(engine)
            lost = _lose(partial(author.do, verb, "words", None), "commit.after")
            assert lost.operation_id is not None
            assert lost.operation_id.version == 7
            assert lost.facts()["operation_id"] == str(lost.operation_id)
            assert lost.retryable
            author.do(verb, "words", OperationId(lost.operation_id))
            assert effects_since(engine, before) == effect

    def test_first_write_of_a_scope_tells_the_id_at_each_of_its_commits(
        self, stores: Stores
    ) -> None:
        for number, point in enumerate(("commit.before", "commit.after") * 2):
            scope, operation = Scope(org="acme", user=f"new {number}"), fresh()
            start = partial(stores.sessions.start, scope, DEFAULT_WORKSPACE, operation_id=operation)
            assert _lose(start, point, nth=1 + number // 2).operation_id == operation
            started = start()
            assert [one.id for one in stores.sessions.list(scope).items] == [started.id]

    def test_append_goes_on_after_a_lost_acknowledgement(
        self, author: Author, stores: Stores
    ) -> None:
        operation = fresh()
        _lose(partial(author.append, "lost", operation), "commit.after")
        assert author.append("lost", operation).first_sequence == 1
        assert author.append("next", None).first_sequence == 2
        assert stores.transcript.verify(ANA, author.written.id).event_count == 2


class TestReceipts:
    """What is remembered of a request: a keyed digest, never a word of it."""

    @pytest.mark.invariant("INV-26")
    def test_remembered_operations_hold_no_content(self, author: Author, engine: Engine) -> None:
        words = "quince marmalade"
        receipts = [author.do(verb, words, fresh()) for verb in ("set_title", "relink")]
        rows = engine.alter("SELECT * FROM operations")
        assert len(rows) == len(receipts) == 2
        assert not any(part in repr(rows) for part in words.split())
        receipt = author.do("append", words, fresh())
        assert set(receipt.__struct_fields__) == {
            *("session_id", "operation_id", "first_sequence", "last_sequence"),
            *("recorded_at", "link"),
        }
        assert not any(part in repr(receipt) for part in words.split())

    def test_digest_is_keyed_by_the_scope(self, stores: Stores, engine: Engine) -> None:
        for scope in (ANA, BEN):
            stores.sessions.start(scope, DEFAULT_WORKSPACE, title="the same words")
        digests = {bytes(row[0]) for row in engine.alter("SELECT request_digest FROM sessions")}
        assert [len(digest) for digest in digests] == [16, 16]


def _lose(verb: Callable[[], object], point: str, nth: int = 1) -> Uncertain:
    """What `verb` says when the acknowledgement of a commit is lost."""
    with Faults() as faults:
        faults.fail(point, nth=nth)
        with pytest.raises(Uncertain) as lost:
            verb()
    return lost.value
