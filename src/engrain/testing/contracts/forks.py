"""The promises of `ForkStore`: a new session on a verified prefix, which says whence it came."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from engrain.contracts import limits
from engrain.contracts.errors import (
    Corrupt,
    InvalidValue,
    LimitExceeded,
    NotFound,
    SnapshotMismatch,
)
from engrain.contracts.events import AssistantMessage, Erased, ToolCall, ToolResult, UserMessage
from engrain.contracts.forks import ForkRequest
from engrain.contracts.ids import OperationId, SessionId
from engrain.contracts.leases import SessionLease
from engrain.contracts.sessions import ForkPoint, Session
from engrain.contracts.workspace import named_workspace
from engrain.rules.canonical import encode_event
from engrain.system.ids import SystemIds
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, BEN, START_US, begin, history, hold, say
from engrain.testing.contracts.snapshots import BARE, SNAPSHOT, configured
from engrain.testing.engines import Engine, Stores, open_stores
from engrain.testing.races import RACERS, Racer, Racers

ALL = ForkRequest()
SPOKEN = ("user_message", "assistant_message")


def converse(stores: Stores, session: Session, turns: int = 3) -> SessionLease:
    """Turns of two events each, said under a lease that is still held."""
    lease = hold(stores, session)
    for number in range(1, turns + 1):
        say(stores, lease, f"question {number}", reply=f"answer {number}")
    return lease


def list_ids(stores: Stores) -> set[SessionId]:
    return {session.id for session in stores.sessions.list(ANA, limit=1_000).items}


@pytest.mark.invariant("INV-15")
class TestForking:
    """`fork`."""

    def test_fork_holds_the_history_as_it_was_and_says_where_it_came_from(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        source = stores.sessions.start(ANA, named_workspace("work"), title="source")
        converse(stores, source)
        clock.advance(7)
        fork = stores.forks.fork(ANA, source.id, ForkRequest(title="fork"))
        assert fork.forked_from == ForkPoint(source.id, 6)
        assert history(stores, fork) == history(stores, source)
        assert fork.id != source.id
        assert (fork.title, fork.workspace) == ("fork", named_workspace("work"))
        assert (fork.event_count, fork.leased_until) == (6, None)
        assert (fork.created_at, fork.opened_at, fork.updated_at) == (START_US + 7,) * 3
        assert stores.sessions.read(ANA, fork.id) == fork

    def test_returned_fork_is_durable(self, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as first, open_stores(shared_engine) as second:
            source = begin(first)
            converse(first, source)
            fork = first.forks.fork(ANA, source.id, ALL)
            assert second.sessions.read(ANA, fork.id) == fork
        with open_stores(shared_engine) as later:
            assert later.transcript.verify(ANA, fork.id).event_count == 6

    def test_prefix_ends_where_it_was_asked_to(self, stores: Stores) -> None:
        source = begin(stores, title="not taken over")
        converse(stores, source)
        for through in (0, 2, 4, 6):
            fork = stores.forks.fork(ANA, source.id, ForkRequest(through=through))
            assert fork.forked_from == ForkPoint(source.id, through)
            assert (fork.event_count, fork.title) == (through, None)
            assert history(stores, fork) == history(stores, source)[:through]
            assert stores.transcript.verify(ANA, fork.id).event_count == through

    def test_prefix_ends_with_an_agent_turn_alone(self, stores: Stores) -> None:
        source = begin(stores)
        lease = converse(stores, source, turns=2)
        stores.transcript.append_turn(lease, [AssistantMessage(text="and more")], turn=3)
        say(stores, lease, "question 3")
        for through in (1, 3, 4, 7, 2**32, 2**63, -1, 2.0, "2", True):
            with pytest.raises(InvalidValue) as refused:
                stores.forks.fork(ANA, source.id, ForkRequest(through=through))  # type: ignore[arg-type]
            assert refused.value.field == "through"
        assert list_ids(stores) == {source.id}
        for through in (2, 5, 6):
            fork = stores.forks.fork(ANA, source.id, ForkRequest(through=through))
            assert fork.event_count == through

    def test_fork_of_an_empty_session_is_empty(self, stores: Stores) -> None:
        source = begin(stores)
        fork = stores.forks.fork(ANA, source.id, ALL)
        assert fork.forked_from == ForkPoint(source.id, 0)
        assert history(stores, fork) == []
        assert say(stores, hold(stores, fork), "first words").first_sequence == 1

    def test_source_stays_as_it_was_and_its_writer_goes_on(self, stores: Stores) -> None:
        source = begin(stores, title="source")
        lease = converse(stores, source)
        before = stores.sessions.read(ANA, source.id)
        stores.forks.fork(ANA, source.id, ALL)
        assert stores.sessions.read(ANA, source.id) == before
        assert say(stores, lease, "undisturbed").first_sequence == 7

    def test_fork_and_source_go_ways_of_their_own(self, stores: Stores) -> None:
        source = begin(stores)
        first = converse(stores, source, turns=1)
        fork = stores.forks.fork(ANA, source.id, ALL)
        say(stores, first, "in the source")
        assert say(stores, hold(stores, fork), "in the fork").first_sequence == 3
        assert [one.event.text for one in history(stores, source)][2:] == ["in the source"]
        assert [one.event.text for one in history(stores, fork)][2:] == ["in the fork"]

    def test_fork_of_a_fork_says_where_it_came_from_itself(self, stores: Stores) -> None:
        source = begin(stores)
        converse(stores, source)
        fork = stores.forks.fork(ANA, source.id, ForkRequest(through=4))
        say(stores, hold(stores, fork), "in the fork")
        second = stores.forks.fork(ANA, fork.id, ALL)
        assert second.forked_from == ForkPoint(fork.id, 5)
        assert history(stores, second) == history(stores, fork)
        assert stores.transcript.verify(ANA, second.id).event_count == 5

    @pytest.mark.invariant("INV-12")
    def test_tool_pairs_are_taken_over_whole_and_their_ids_stay_used(self, stores: Stores) -> None:
        source = begin(stores)
        pair = (ToolCall(call_id="c1", name="look"), ToolResult(call_id="c1", text="seen"))
        stores.transcript.append_turn(hold(stores, source), (UserMessage(text="look"), *pair))
        fork = stores.forks.fork(ANA, source.id, ALL)
        lease = hold(stores, fork)
        with pytest.raises(InvalidValue):
            stores.transcript.append_turn(lease, pair)
        assert stores.sessions.read(ANA, fork.id).event_count == 3

    @pytest.mark.invariant("INV-20")
    def test_session_of_another_scope_cannot_be_forked(self, stores: Stores) -> None:
        source, unknown = begin(stores), SessionId(uuid4())
        converse(stores, source)
        begin(stores, BEN)
        with pytest.raises(NotFound) as foreign:
            stores.forks.fork(BEN, source.id, ALL)
        with pytest.raises(NotFound) as missing:
            stores.forks.fork(BEN, unknown, ALL)
        facts = foreign.value.facts()
        facts["message"] = foreign.value.message.replace(str(source.id), str(unknown))
        assert facts == missing.value.facts()
        assert len(stores.sessions.list(BEN).items) == 1

    def test_wrong_title_or_snapshot_makes_no_fork(self, stores: Stores) -> None:
        source = begin(stores)
        converse(stores, source)
        unclean = ForkRequest(snapshot=configured("a\ud800b"))
        for request in (ForkRequest(title=" "), ForkRequest(title="a\0b"), unclean):
            with pytest.raises(InvalidValue):
                stores.forks.fork(ANA, source.id, request)
        assert list_ids(stores) == {source.id}


@pytest.mark.invariant("INV-15")
class TestNewSnapshot:
    """A fork is the way on for a session whose tools or prompt have changed."""

    def test_fork_demands_its_own_snapshot_and_the_source_keeps_its(self, stores: Stores) -> None:
        source = begin(stores)
        lease = hold(stores, source)
        stores.snapshots.bind(lease, SNAPSHOT)
        say(stores, lease, "with the old tools")
        fork = stores.forks.fork(ANA, source.id, ForkRequest(snapshot=BARE))
        assert stores.snapshots.read(ANA, fork.id) == BARE
        assert stores.snapshots.read(ANA, source.id) == SNAPSHOT
        forked = hold(stores, fork)
        with pytest.raises(SnapshotMismatch):
            stores.snapshots.bind(forked, SNAPSHOT)
        stores.snapshots.bind(forked, BARE)
        assert say(stores, forked, "with the new ones").first_sequence == 2

    def test_history_without_a_snapshot_goes_on_in_a_fork(self, stores: Stores) -> None:
        source = begin(stores)
        lease = converse(stores, source)
        with pytest.raises(SnapshotMismatch):
            stores.snapshots.bind(lease, SNAPSHOT)
        fork = stores.forks.fork(ANA, source.id, ForkRequest(snapshot=SNAPSHOT))
        stores.snapshots.bind(hold(stores, fork), SNAPSHOT)

    def test_fork_with_history_takes_no_snapshot_later(self, stores: Stores) -> None:
        source = begin(stores)
        lease = hold(stores, source)
        stores.snapshots.bind(lease, SNAPSHOT)
        say(stores, lease, "hello")
        fork = stores.forks.fork(ANA, source.id, ALL)
        with pytest.raises(NotFound):
            stores.snapshots.read(ANA, fork.id)
        with pytest.raises(SnapshotMismatch):
            stores.snapshots.bind(hold(stores, fork), SNAPSHOT)


@pytest.mark.invariant("INV-11")
class TestForkedChain:
    """A fork's chain is its own, and can forget like any other."""

    def test_chain_verifies_and_is_not_the_sources(self, stores: Stores) -> None:
        source = begin(stores)
        converse(stores, source)
        fork = stores.forks.fork(ANA, source.id, ALL)
        ours, theirs = (stores.transcript.verify(ANA, one.id) for one in (fork, source))
        assert (ours.session_id, ours.event_count, ours.erased) == (fork.id, 6, 0)
        assert ours.link != theirs.link

    def test_what_was_forgotten_stays_forgotten(self, stores: Stores, engine: Engine) -> None:
        source = begin(stores)
        converse(stores, source)
        assert stores.transcript.redact(ANA, source.id, [3, 4]) == 2
        fork = stores.forks.fork(ANA, source.id, ALL)
        replayed = list(stores.transcript.replay(stores.leases.claim(ANA, fork.id)))
        assert [one.event for one in replayed[2:4]] == [Erased(was=was) for was in SPOKEN]
        assert [one.event.text for one in replayed[4:]] == ["question 3", "answer 3"]
        assert stores.transcript.verify(ANA, fork.id).erased == 2
        assert engine.alter("SELECT count(*) FROM events WHERE payload IS NULL") == [(4,)]

    def test_fork_forgets_without_its_source(self, stores: Stores) -> None:
        source = begin(stores)
        converse(stores, source)
        fork = stores.forks.fork(ANA, source.id, ALL)
        stores.transcript.redact(ANA, fork.id, [1])
        assert stores.transcript.verify(ANA, fork.id).erased == 1
        assert stores.transcript.verify(ANA, source.id).erased == 0

    def test_change_to_the_fork_is_found(self, stores: Stores, engine: Engine) -> None:
        source = begin(stores)
        converse(stores, source)
        fork = stores.forks.fork(ANA, source.id, ForkRequest(through=2))
        engine.alter(
            "UPDATE batches SET recorded_at = recorded_at + 1 WHERE request_digest = :copied",
            copied=b"fork",
        )
        with pytest.raises(Corrupt):
            stores.transcript.verify(ANA, fork.id)
        assert stores.transcript.verify(ANA, source.id).event_count == 6


DAMAGES = {
    "a word": "UPDATE events SET payload = :other WHERE payload = :words",
    "a kind": "UPDATE events SET kind = 'system' WHERE payload = :words",
    "a turn": "UPDATE events SET turn = 9 WHERE payload = :words",
    "a salt": "UPDATE events SET salt = :zeros WHERE payload = :words",
    "a commitment": "UPDATE events SET commitment = :link WHERE payload = :words",
    "a missing event": "DELETE FROM events WHERE payload = :words",
    "a time": "UPDATE batches SET recorded_at = 1 WHERE operation_id = :operation",
    "a link": "UPDATE batches SET link = :link WHERE operation_id = :operation",
    "a missing batch": "DELETE FROM batches WHERE operation_id = :operation",
    "a head": "UPDATE sessions SET link = :link WHERE session_id = :session_id",
}


@pytest.mark.invariant("INV-11")
@pytest.mark.invariant("INV-15")
class TestVerifiedPrefix:
    """Nothing is taken over that does not verify, and nothing past the prefix matters."""

    def test_damaged_history_is_refused_whatever_was_done_to_it(
        self, stores: Stores, engine: Engine
    ) -> None:
        for damage in DAMAGES.values():
            source = _damaged(stores, engine, damage)
            with pytest.raises(Corrupt):
                stores.forks.fork(ANA, source.id, ALL)
        assert len(list_ids(stores)) == len(DAMAGES)

    def test_history_that_lost_its_end_is_refused(self, stores: Stores, engine: Engine) -> None:
        source = begin(stores)
        converse(stores, source)
        engine.alter("DELETE FROM events WHERE turn = 5")
        engine.alter("DELETE FROM batches WHERE last_sequence = 6")
        with pytest.raises(Corrupt):
            stores.forks.fork(ANA, source.id, ALL)
        assert stores.forks.fork(ANA, source.id, ForkRequest(through=4)).event_count == 4

    def test_damage_past_the_prefix_does_not_stop_a_fork_before_it(
        self, stores: Stores, engine: Engine
    ) -> None:
        for damage in DAMAGES.values():
            source = _damaged(stores, engine, damage)
            fork = stores.forks.fork(ANA, source.id, ForkRequest(through=2))
            assert stores.transcript.verify(ANA, fork.id).event_count == 2

    def test_history_past_the_replay_bounds_is_refused_and_a_prefix_within_them_is_not(
        self, stores: Stores
    ) -> None:
        source = begin(stores)
        lease = hold(stores, source)
        large = [UserMessage(text="a" * (limits.event_bytes_max - limits.KIB))] * 3
        turns = limits.replay_bytes_max // (3 * limits.event_bytes_max) + 1
        for _ in range(turns):
            stores.transcript.append_turn(lease, large)
        with pytest.raises(LimitExceeded) as refused:
            stores.forks.fork(ANA, source.id, ALL)
        assert (refused.value.limit, refused.value.most) == ("replay_bytes_max", 64 * limits.MIB)
        assert list_ids(stores) == {source.id}
        assert stores.forks.fork(ANA, source.id, ForkRequest(through=3)).event_count == 3

    def test_more_events_than_the_replay_bound_are_refused_unread(
        self, stores: Stores, engine: Engine
    ) -> None:
        source = begin(stores)
        converse(stores, source)
        engine.alter("UPDATE sessions SET last_sequence = 100001")
        with pytest.raises(LimitExceeded) as refused:
            stores.forks.fork(ANA, source.id, ALL)
        assert (refused.value.limit, refused.value.most) == ("replay_events_max", 100_000)


@pytest.mark.invariant("INV-15")
class TestForkRaces:
    """Six processes fork one session."""

    def test_every_acknowledged_fork_is_there_once(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        with open_stores(shared_engine) as stores:
            source = begin(stores)
            converse(stores, source)
            forks = [
                SessionId(UUID(one)) for ids in race.race(race_forks, source.id) for one in ids
            ]
            assert len(set(forks)) == len(forks) == 4 * RACERS
            assert list_ids(stores) == {source.id, *forks}
            assert {stores.transcript.verify(ANA, one).event_count for one in forks} == {6}

    def test_fork_of_a_session_that_grows_is_a_whole_prefix(
        self, race: Racers, shared_engine: Engine
    ) -> None:
        with open_stores(shared_engine) as stores:
            source = begin(stores)
            answers = race.race(race_forks_of_growing, source.id)
            said = history(stores, source)
            assert len(said) == 40
            for fork_id, count in (pair for pairs in answers for pair in pairs):
                fork = stores.sessions.read(ANA, SessionId(UUID(fork_id)))
                assert fork.forked_from == ForkPoint(source.id, count)
                assert count % 2 == 0
                assert history(stores, fork) == said[:count]
                assert stores.transcript.verify(ANA, fork.id).event_count == count

    @pytest.mark.invariant("INV-13")
    def test_one_operation_id_makes_one_fork(self, race: Racers, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as stores:
            source = begin(stores)
            converse(stores, source)
            for _ in range(4):
                assert len(set(race.race(race_fork_operation, source.id, uuid4()))) == 1
            assert len(list_ids(stores)) == 5


def race_forks(racer: Racer, session_id: SessionId) -> list[str]:
    return [str(racer.stores.forks.fork(ANA, session_id, ALL).id) for _ in range(4)]


def race_forks_of_growing(racer: Racer, session_id: SessionId) -> list[tuple[str, int]]:
    """The first process appends twenty turns; the others fork what there is."""
    if racer.number == 0:
        converse(racer.stores, racer.stores.sessions.read(ANA, session_id), turns=20)
        return []
    forks = [racer.stores.forks.fork(ANA, session_id, ALL) for _ in range(4)]
    return [(str(fork.id), fork.event_count) for fork in forks]


def race_fork_operation(racer: Racer, session_id: SessionId, operation: UUID) -> str:
    fork = racer.stores.forks.fork(ANA, session_id, ALL, operation_id=OperationId(operation))
    return str(fork.id)


def _damaged(stores: Stores, engine: Engine, damage: str) -> Session:
    """A session of two turns whose second one was changed behind the stores' back."""
    source = begin(stores)
    lease = converse(stores, source, turns=1)
    operation = OperationId(SystemIds().uuid7())
    words = UserMessage(text=f"of session {source.id}")
    stores.transcript.append_turn(lease, [words], operation_id=operation)
    engine.alter(
        damage,
        words=encode_event(words),
        other=encode_event(UserMessage(text="never said")),
        zeros=b"\0" * 16,
        link=b"\0" * 32,
        operation=operation.bytes,
        session_id=source.id.bytes,
    )
    return source
