"""The promises of reading a transcript: replayed under a lease, read on without one."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from engrain.contracts import limits
from engrain.contracts.errors import Corrupt, LimitExceeded, NotFound, ReplayRequired
from engrain.contracts.events import (
    AssistantMessage,
    Erased,
    ToolCall,
    ToolResult,
    UserMessage,
)
from engrain.contracts.ids import SessionId
from engrain.contracts.leases import SessionLease
from engrain.contracts.sessions import Session
from engrain.testing.contracts import ANA, BEN, begin, history, hold, say
from engrain.testing.engines import Engine, Stores

PAIRED = (
    UserMessage(text="look"),
    ToolCall(call_id="c1", name="look"),
    ToolCall(call_id="c2", name="look"),
    ToolResult(call_id="c1", text="seen"),
    ToolResult(call_id="c2", text="seen too"),
    AssistantMessage(text="There."),
)


class TestReplaying:
    """`replay`."""

    def test_replay_gives_back_what_was_appended(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        stores.transcript.append_turn(lease, PAIRED)
        say(stores, lease, "and then?", reply="nothing")
        replayed = list(stores.transcript.replay(lease))
        assert [stored.event.text for stored in replayed][-2:] == ["and then?", "nothing"]
        assert [stored.event for stored in replayed[:6]] == list(PAIRED)
        assert replayed == history(stores, session)

    def test_empty_session_replays_as_nothing(self, stores: Stores) -> None:
        lease = stores.leases.claim(ANA, begin(stores).id)
        assert list(stores.transcript.replay(lease)) == []
        assert say(stores, lease, "first").first_sequence == 1

    def test_long_history_is_replayed_whole(self, stores: Stores) -> None:
        session = _long(stores, turns=300)
        lease = stores.leases.claim(ANA, session.id)
        assert [one.event.text for one in stores.transcript.replay(lease)] == [
            f"turn {number}" for number in range(1, 301)
        ]

    @pytest.mark.invariant("INV-11")
    @pytest.mark.parametrize("is_verified", [True, False])
    def test_history_that_lost_its_end_is_not_replayed_as_whole(
        self, stores: Stores, engine: Engine, is_verified: bool
    ) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        say(stores, lease, "kept")
        _lose(engine, say(stores, lease, "lost").operation_id.bytes, "lost")
        with pytest.raises(Corrupt):
            list(stores.transcript.replay(lease, is_verified=is_verified))
        with pytest.raises(ReplayRequired):
            say(stores, lease, "on top of what is missing")

    @pytest.mark.invariant("INV-11")
    def test_what_was_tampered_with_is_never_returned(self, stores: Stores, engine: Engine) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        for text in ("first", "second", "third"):
            say(stores, lease, text)
        _change(engine, "second", "sacred")
        seen: list[str] = []
        with pytest.raises(Corrupt):
            seen.extend(one.event.text for one in stores.transcript.replay(lease))
        assert _texts(stores.transcript.replay(lease)) == ["first"]
        with pytest.raises(ReplayRequired):
            say(stores, lease, "on top of it")

    @pytest.mark.invariant("INV-12")
    @pytest.mark.parametrize("sequences", [[2], [4], [2, 4], [1, 2, 3, 4, 5, 6], [3, 6]])
    def test_erased_events_are_marked_and_pairs_stay_whole(
        self, stores: Stores, sequences: list[int]
    ) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        stores.transcript.append_turn(lease, PAIRED)
        assert stores.transcript.redact(ANA, session.id, sequences) == len(sequences)
        kinds = ["user_message", *["tool_call"] * 2, *["tool_result"] * 2, "assistant_message"]
        assert [stored.event for stored in stores.transcript.replay(lease)] == [
            Erased(was=kinds[at]) if at + 1 in sequences else event
            for at, event in enumerate(PAIRED)
        ]
        assert say(stores, lease, "on it goes").first_sequence == 7


class TestReplayBounds:
    """At most 100,000 events and 64 MiB are replayed; older history is paged."""

    def test_bounds_are_those_of_the_record(self) -> None:
        assert limits.replay_events_max == 100_000
        assert limits.replay_bytes_max == 64 * 1024 * 1024

    @pytest.mark.parametrize(
        ("bound", "most"), [("replay_events_max", 4), ("replay_bytes_max", 1_000)]
    )
    def test_longer_history_is_refused_and_can_be_paged(
        self, stores: Stores, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
    ) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        for _ in range(5):
            say(stores, lease, "x" * 200)
        monkeypatch.setattr(limits, bound, most)
        with pytest.raises(LimitExceeded) as refused:
            list(stores.transcript.replay(lease))
        assert (refused.value.limit, refused.value.most) == (bound, most)
        with pytest.raises(ReplayRequired):
            say(stores, lease, "unseen")
        assert len(history(stores, session)) == 5
        unbounded = stores.transcript.replay(lease, is_bounded=False)
        assert [stored.sequence for stored in unbounded] == [1, 2, 3, 4, 5]
        assert say(stores, lease, "seen").first_sequence == 6

    @pytest.mark.parametrize(
        ("bound", "most"), [("replay_events_max", 5), ("replay_bytes_max", 1_000)]
    )
    def test_history_at_the_bound_is_replayed(
        self, stores: Stores, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
    ) -> None:
        lease = hold(stores, begin(stores))
        bare = len(b'{"kind":"user_message","text":""}')
        for _ in range(5):
            say(stores, lease, "x" * (200 - bare))
        monkeypatch.setattr(limits, bound, most)
        assert len(list(stores.transcript.replay(lease))) == 5


class TestPaging:
    """`iter_events`: past an exclusive sequence, without a lease."""

    def test_any_window_of_the_history_can_be_read(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        for size in (1, 3, 2, 5, 1):
            stores.transcript.append_turn(lease, [UserMessage(text="x")] * size)
        for after in range(14):
            for limit in (None, 0, 1, 4, 20):
                read = stores.transcript.iter_events(ANA, session.id, after=after, limit=limit)
                expected = list(range(after + 1, 13))[:limit]
                assert [stored.sequence for stored in read] == expected

    def test_pages_join_without_gap_while_turns_are_added(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        seen: list[int] = []
        for _ in range(8):
            say(stores, lease, "more", reply="yes")
            after = seen[-1] if seen else 0
            page = stores.transcript.iter_events(ANA, session.id, after=after, limit=3)
            seen += [stored.sequence for stored in page]
        assert seen == list(range(1, 17))

    def test_reading_needs_no_lease_and_disturbs_none(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        say(stores, lease, "one")
        reading = stores.transcript.iter_events(ANA, session.id)
        assert next(reading).sequence == 1
        assert say(stores, lease, "two").first_sequence == 2
        assert len(history(stores, session)) == 2

    @pytest.mark.invariant("INV-20")
    def test_history_of_another_scope_is_not_found(self, stores: Stores) -> None:
        session = begin(stores)
        say(stores, hold(stores, session), "private")
        begin(stores, BEN)
        for wrong in (session.id, SessionId(uuid4())):
            with pytest.raises(NotFound):
                next(stores.transcript.iter_events(BEN, wrong))
            with pytest.raises(NotFound):
                stores.transcript.verify(BEN, wrong)
            with pytest.raises(NotFound):
                stores.transcript.known_sources(BEN, wrong)
            with pytest.raises(NotFound):
                stores.transcript.redact(BEN, wrong, [1])
        assert [one.event.text for one in history(stores, session)] == ["private"]


class TestSources:
    """`known_sources`: which imported events a session holds, told without keeping their ids."""

    def test_imported_events_are_known_by_their_ids(self, stores: Stores) -> None:
        session, other = begin(stores), begin(stores)
        lease = hold(stores, session)
        said = [UserMessage(text="x", source_id=f"m{number}") for number in range(3)]
        stores.transcript.append_turn(lease, [*said, AssistantMessage(text="not imported")])
        known = stores.transcript.known_sources(ANA, session.id)
        assert ["m0" in known, "m2" in known, "m3" in known, "" in known] == [True, True] + [
            False
        ] * 2
        assert "m0" not in stores.transcript.known_sources(ANA, other.id)

    def test_forgotten_event_stays_known_so_that_no_import_brings_it_back(
        self, stores: Stores
    ) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        stores.transcript.append_turn(lease, [UserMessage(text="x", source_id="m0")])
        stores.transcript.redact(ANA, session.id, [1])
        assert "m0" in stores.transcript.known_sources(ANA, session.id)


def _long(stores: Stores, turns: int) -> Session:
    session = begin(stores)
    lease: SessionLease = hold(stores, session)
    for number in range(1, turns + 1):
        say(stores, lease, f"turn {number}")
    stores.leases.release(lease)
    return session


def _texts(replayed: Iterator[object]) -> list[str]:
    """The words up to where the replay stops with `Corrupt`."""
    texts: list[str] = []
    with pytest.raises(Corrupt):
        for stored in replayed:
            texts.append(stored.event.text)  # type: ignore[attr-defined]
    return texts


def _change(engine: Engine, old: str, new: str) -> None:
    rows = engine.alter("SELECT commitment, payload FROM events")
    for commitment, payload in rows:
        if old.encode() in payload:
            changed = bytes(payload).replace(old.encode(), new.encode())
            engine.alter(
                "UPDATE events SET payload = :payload WHERE commitment = :commitment",
                payload=changed,
                commitment=bytes(commitment),
            )


def _lose(engine: Engine, operation_id: bytes, text: str) -> None:
    """Removes a batch of one event as if it had never been there."""
    for commitment, payload in engine.alter("SELECT commitment, payload FROM events"):
        if text.encode() in payload:
            engine.alter("DELETE FROM events WHERE commitment = :mark", mark=bytes(commitment))
    engine.alter("DELETE FROM batches WHERE operation_id = :id", id=operation_id)
