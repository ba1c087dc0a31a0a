"""What belongs to another scope is not there: ids, cursors, operations, sources and twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from engrain.contracts.episodes import NewEpisode
from engrain.contracts.errors import InvalidValue, NotFound
from engrain.contracts.ids import EpisodeId, OperationId, SessionId
from engrain.contracts.scope import Scope
from engrain.contracts.workspace import named_workspace
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, BEN, START_US, begin, hold, say
from engrain.testing.contracts.episodes import remember
from engrain.testing.engines import Stores
from engrain.testing.ids import SeededIds


class TestForeign:
    """Another scope's ids and cursors are answered as those that never were."""

    @pytest.mark.invariant("INV-20")
    def test_every_verb_finds_no_foreign_session(self, stores: Stores) -> None:
        begin(stores, BEN)
        foreign = begin(stores, ANA)
        say(stores, hold(stores, foreign), "the heron waits")
        for name, verb in _session_verbs(stores, BEN):
            assert _refusal(verb, foreign.id) == _refusal(verb, SessionId(uuid4())), name
        assert stores.sessions.read(ANA, foreign.id).event_count == 1

    @pytest.mark.invariant("INV-20")
    def test_every_verb_finds_no_foreign_episode(self, stores: Stores) -> None:
        foreign = remember(stores, begin(stores), "the heron waits").ids[0]
        remember(stores, begin(stores, BEN), "a quiet evening", scope=BEN)
        for _ in range(2):
            for wanted in (foreign, EpisodeId(uuid4())):
                with pytest.raises(NotFound):
                    stores.episodes.read(BEN, wanted)
                assert stores.episodes.tombstone(BEN, [wanted]) == 0
            stores.episodes.settle(ANA)
        assert stores.episodes.read(ANA, foreign).text == "the heron waits"
        assert stores.episodes.search(BEN, "heron") == ()

    @pytest.mark.invariant("INV-20")
    def test_foreign_cursors_are_refused_like_broken_ones(self, stores: Stores) -> None:
        for scope in (ANA, BEN):
            for _ in range(3):
                remember(stores, begin(stores, scope), "a", "b", scope=scope)
        for verb in (stores.sessions.list, stores.episodes.list):
            cursor = verb(ANA, limit=1).next
            assert cursor
            refusals = []
            for bad in (cursor, "x" * len(cursor)):
                with pytest.raises(InvalidValue) as caught:
                    verb(BEN, cursor=bad)
                refusals.append(caught.value.facts())
            assert refusals[0] == refusals[1]

    @pytest.mark.invariant("INV-20")
    def test_an_operation_id_is_one_scopes_own(self, stores: Stores) -> None:
        operation = OperationId(SeededIds("op", HeldClock(START_US)).uuid7())
        found = [
            stores.memory.sessions.start(scope, title=title, operation_id=operation)
            for scope, title in ((ANA, "one"), (BEN, "other"))
        ]
        assert [session.title for session in found] == ["one", "other"]
        assert found[0].id != found[1].id

    @pytest.mark.invariant("INV-20")
    def test_a_source_is_one_scopes_own(self, stores: Stores) -> None:
        source = ("claude", "conversation")
        mine = stores.sessions.start(ANA, begin(stores).workspace, source=source)
        assert stores.sessions.find_source(BEN, source) is None
        theirs = stores.sessions.start(BEN, mine.workspace, source=source)
        assert theirs.id != mine.id
        assert stores.sessions.find_source(ANA, source) == mine

    @pytest.mark.invariant("INV-20")
    def test_twins_do_not_meet_across_scopes(self, stores: Stores) -> None:
        remember(stores, begin(stores), "the heron waits")
        theirs = remember(stores, begin(stores, BEN), "the heron waits", scope=BEN).ids
        (hit,) = stores.episodes.search(BEN, "heron")
        assert hit.sources == theirs

    @pytest.mark.invariant("INV-20")
    @pytest.mark.parametrize("one", [ANA, Scope(org="ana", user="acme")])
    def test_scopes_are_not_joined_by_how_they_are_written(
        self, stores: Stores, one: Scope
    ) -> None:
        remember(stores, begin(stores, one), "the heron waits", scope=one)
        for other in (
            Scope(org=one.user, user=one.org),
            Scope(org=one.org, user=one.user.upper()),
            Scope(org=one.org + one.user[:1], user=one.user[1:]),
            Scope(org=one.org, user=one.user + "\u0301"),
            Scope(org=one.org, user=f"{one.user}\\"),
        ):
            assert stores.episodes.search(other, "heron") == ()
            assert stores.sessions.list(other).items == ()
            assert stores.audit.list(other) == ()


def _session_verbs(
    stores: Stores, scope: Scope
) -> Iterator[tuple[str, Callable[[SessionId], object]]]:
    """Every public verb that takes a session, bound to a scope."""
    memory = stores.memory
    episode = NewEpisode(text="x", first_sequence=1, last_sequence=1)
    yield "read", lambda it: memory.sessions.read(scope, it)
    yield "lease", lambda it: memory.sessions.lease(scope, it)
    yield "iter_events", lambda it: list(memory.sessions.iter_events(scope, it))
    yield "set_title", lambda it: memory.sessions.set_title(scope, it, "mine")
    yield "read_snapshot", lambda it: memory.sessions.read_snapshot(scope, it)
    yield "fork", lambda it: memory.sessions.fork(scope, it)
    yield "verify", lambda it: memory.sessions.verify(scope, it)
    yield "validate_workspace", lambda it: memory.sessions.validate_workspace(scope, it)
    yield "relink", lambda it: stores.sessions.relink(scope, it, named_workspace("elsewhere"))
    yield "extract", lambda it: memory.enrichment.extract(scope, it)
    yield "append", lambda it: memory.episodes.append(scope, it, [episode])
    yield "watermark", lambda it: memory.episodes.read_watermark(scope, it)
    yield "list", lambda it: memory.episodes.list(scope, session_id=it)
    yield "known_sources", lambda it: stores.transcript.known_sources(scope, it)
    yield "redact", lambda it: stores.transcript.redact(scope, it, [1])


def _refusal(verb: Callable[[SessionId], object], session_id: SessionId) -> dict[str, object]:
    """The facts of the refusal, the id that was asked for left out."""
    with pytest.raises(NotFound) as caught:
        verb(session_id)
    facts = caught.value.facts()
    return facts | {"message": str(facts["message"]).replace(str(session_id), "ID")}
