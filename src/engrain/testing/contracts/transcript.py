"""The promises of `TranscriptStore.append_turn`: whole turns of what a resume can take."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import pytest

from engrain.contracts import limits
from engrain.contracts.errors import (
    InvalidValue,
    LimitExceeded,
    ReplayRequired,
    StaleReplay,
    Uncertain,
)
from engrain.contracts.events import (
    EVENT_KINDS,
    KIND_OF,
    Approval,
    AssistantMessage,
    Audit,
    Erased,
    Event,
    Failure,
    Recall,
    Summary,
    System,
    ToolCall,
    ToolResult,
    UserMessage,
)
from engrain.contracts.ids import OperationId
from engrain.contracts.leases import SessionLease
from engrain.rules.canonical import encode_event
from engrain.rules.retry import uuid7_time_us
from engrain.storage.database import Writer
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import ANA, START_US, begin, history, hold, say
from engrain.testing.engines import Engine, Stores, open_stores
from engrain.testing.faults import Faults

QUESTION = UserMessage(text="what is there?")
CALL = ToolCall(call_id="c1", name="look", arguments='{"at":"shelf"}')
RESULT = ToolResult(call_id="c1", text="three books")
CALL_2 = ToolCall(call_id="c2", name="look")
RESULT_2 = ToolResult(call_id="c2", text="", status="failed")
ANSWER = AssistantMessage(text="Three books.")
ALLOWED = Approval(call_id="c1", is_allowed=True)
NOTE = Audit(name="retried")
SUMMARY = Summary(text="so far", covers_sequence=1, covers_link="00")

OF_EACH_KIND: tuple[Event, ...] = (
    System(text="Be brief."),
    UserMessage(
        text="Olá, 世界 🌍 — e\u0301 \u200f\ufeff\U0010ffff", speaker="Ana", source_id="m1"
    ),
    Recall(text="<memory>…</memory>", episode_ids=("a", "b"), tokens=12),
    AssistantMessage(text="line\nline\ttab \x01 \x7f \u2028", occurred_at=START_US - 1),
    CALL,
    ALLOWED,
    RESULT,
    NOTE,
    Failure(code="timeout", text="no answer"),
)

PAIRS_REFUSED: dict[str, tuple[Event, ...]] = {
    "a call without its result": (QUESTION, CALL),
    "a result without its call": (QUESTION, RESULT),
    "words between a call and its result": (QUESTION, CALL, ANSWER, RESULT),
    "results out of order": (CALL, CALL_2, RESULT_2, RESULT),
    "a result missing among several": (CALL, CALL_2, RESULT),
    "a result twice": (CALL, RESULT, RESULT),
    "a call id twice in one run": (CALL, CALL, RESULT, RESULT),
    "a call id twice in one turn": (CALL, RESULT, QUESTION, CALL, RESULT),
    "a call before the results of others": (CALL, CALL_2, RESULT, CALL_2, RESULT_2),
    "a result before its call": (RESULT, CALL),
}
PAIRS_ACCEPTED: dict[str, tuple[Event, ...]] = {
    "one after the other": (QUESTION, CALL, RESULT, CALL_2, RESULT_2, ANSWER),
    "side by side": (QUESTION, CALL, CALL_2, RESULT, RESULT_2, ANSWER),
    "with what the model does not see between": (CALL, ALLOWED, NOTE, RESULT),
    "nothing but tools": (CALL, RESULT),
}


class TestAppending:
    """`append_turn`."""

    @pytest.mark.invariant("INV-14")
    def test_sequences_are_consecutive_from_1(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        receipts = [say(stores, lease, "a", "b"), say(stores, lease, "c"), say(stores, lease, "d")]
        assert [(one.first_sequence, one.last_sequence) for one in receipts] == [
            (1, 2),
            (3, 3),
            (4, 4),
        ]
        assert [stored.sequence for stored in history(stores, session)] == [1, 2, 3, 4]
        assert stores.sessions.read(ANA, session.id).event_count == 4

    def test_receipt_names_the_batch_and_holds_no_content(
        self, stores: Stores, clock: HeldClock
    ) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        clock.advance(5)
        receipt = say(stores, lease, "quince jam", reply="noted")
        assert receipt.session_id == session.id
        assert uuid7_time_us(receipt.operation_id) is not None
        assert receipt.recorded_at == START_US + 5
        assert receipt.link == stores.transcript.verify(ANA, session.id).link
        assert len(bytes.fromhex(receipt.link)) == 32
        assert "quince" not in repr(receipt)
        assert stores.sessions.read(ANA, session.id).updated_at == START_US + 5

    def test_acknowledged_turn_is_durable(self, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as first, open_stores(shared_engine) as second:
            session = begin(first)
            say(first, hold(first, session), "kept")
            assert [one.event.text for one in history(second, session)] == ["kept"]

    def test_every_kind_comes_back_as_it_was(self, stores: Stores, clock: HeldClock) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        clock.advance(9)
        stores.transcript.append_turn(lease, OF_EACH_KIND)
        found = history(stores, session)
        assert [stored.event for stored in found] == list(OF_EACH_KIND)
        assert {stored.recorded_at for stored in found} == {START_US + 9}
        assert {*EVENT_KINDS} - {KIND_OF[type(event)] for event in OF_EACH_KIND} == {"summary"}

    def test_every_event_carries_its_agent_turn(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        say(stores, lease, "one", reply="two")
        stores.transcript.append_turn(lease, [CALL, RESULT], turn=1)
        say(stores, lease, "next")
        assert [stored.turn for stored in history(stores, session)] == [1, 1, 1, 1, 5]

    @pytest.mark.parametrize("turn", [1, 2, 3, 4, 5, 0, -1])
    def test_only_the_last_agent_turn_can_be_continued(self, stores: Stores, turn: int) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        say(stores, lease, "one")
        say(stores, lease, "two", reply="three")
        if turn == 2:
            assert stores.transcript.append_turn(lease, [ANSWER], turn=turn).first_sequence == 4
            return
        with pytest.raises(InvalidValue) as refused:
            stores.transcript.append_turn(lease, [ANSWER], turn=turn)
        assert refused.value.field == "turn"
        assert stores.sessions.read(ANA, session.id).event_count == 3

    @pytest.mark.invariant("INV-14")
    def test_refused_turn_leaves_nothing_and_the_next_follows_on(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        say(stores, lease, "kept")
        with pytest.raises(InvalidValue):
            stores.transcript.append_turn(lease, [QUESTION, AssistantMessage(text=" ")])
        assert len(history(stores, session)) == 1
        assert say(stores, lease, "next").first_sequence == 2

    @pytest.mark.invariant("INV-14")
    def test_write_that_fails_in_the_middle_leaves_nothing(self, stores: Stores) -> None:
        session = begin(stores, title="old")
        key = hold(stores, session).reveal()[0].key
        where = {"scope_key": key.scope, "session_key": key.session}

        def body(writer: Writer) -> None:
            writer.run("sessions.set_title", title="half", **where)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            stores.database.write(key, body)
        assert stores.sessions.read(ANA, session.id).title == "old"


class TestBounds:
    """How much one turn may hold."""

    def test_turn_holds_1_to_4096_events(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        for count in (0, limits.append_events_max + 1):
            with pytest.raises(InvalidValue) as refused:
                stores.transcript.append_turn(lease, [QUESTION] * count)
            assert refused.value.field == "events"
        receipt = stores.transcript.append_turn(lease, [QUESTION] * 4_096)
        assert (receipt.first_sequence, receipt.last_sequence) == (1, 4_096)
        assert stores.transcript.verify(ANA, session.id).event_count == 4_096

    def test_event_is_at_most_4_mib_and_a_turn_16(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        largest = _of_size(4 * limits.MIB)
        for turn, bound in (
            ([_of_size(4 * limits.MIB + 1)], "event_bytes_max"),
            ([UserMessage(text="é" * (3 * limits.MIB))], "event_bytes_max"),
            ([*[largest] * 4, QUESTION], "append_bytes_max"),
        ):
            with pytest.raises(LimitExceeded) as refused:
                stores.transcript.append_turn(lease, turn)
            assert refused.value.limit == bound
        assert stores.sessions.read(ANA, session.id).event_count == 0
        assert stores.transcript.append_turn(lease, [largest] * 4).last_sequence == 4
        assert [stored.event for stored in history(stores, session)] == [largest] * 4


class TestWhatMayEnter:
    """What a resume would choke on is refused at append."""

    @pytest.mark.invariant("INV-12")
    @pytest.mark.parametrize("events", PAIRS_REFUSED.values(), ids=PAIRS_REFUSED)
    def test_broken_tool_pairs_are_refused(self, stores: Stores, events: Sequence[Event]) -> None:
        _is_refused(stores, events)

    @pytest.mark.invariant("INV-12")
    @pytest.mark.parametrize("events", PAIRS_ACCEPTED.values(), ids=PAIRS_ACCEPTED)
    def test_whole_tool_pairs_are_taken(self, stores: Stores, events: Sequence[Event]) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        stores.transcript.append_turn(lease, events)
        assert [one.event for one in stores.transcript.replay(lease)] == list(events)

    @pytest.mark.invariant("INV-12")
    def test_call_id_is_used_once_in_a_session(self, stores: Stores, clock: HeldClock) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        stores.transcript.append_turn(lease, [CALL, RESULT])
        _call_is_known(stores, lease)
        clock.advance(limits.lease_ttl_us)
        _call_is_known(stores, hold(stores, session))
        assert stores.sessions.read(ANA, session.id).event_count == 2
        other = hold(stores, begin(stores))
        assert stores.transcript.append_turn(other, [CALL, RESULT]).first_sequence == 1

    @pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000"])
    @pytest.mark.parametrize("kind", [System, UserMessage, AssistantMessage])
    def test_blank_text_blocks_are_refused(
        self, stores: Stores, kind: type[UserMessage], text: str
    ) -> None:
        _is_refused(stores, [kind(text=text)])

    def test_summaries_come_from_compaction_alone(self, stores: Stores) -> None:
        _is_refused(stores, [SUMMARY])

    def test_erased_marker_is_never_appended(self, stores: Stores) -> None:
        _is_refused(stores, [Erased(was="user_message")])  # type: ignore[list-item]

    @pytest.mark.parametrize("origin", ["", "nobody", "tool:", "tool:a b", "import:UPPER", "*"])
    def test_unknown_origin_is_refused(self, stores: Stores, origin: str) -> None:
        _is_refused(stores, [UserMessage(text="who?", origin=origin)])

    @pytest.mark.invariant("INV-05")
    @pytest.mark.parametrize("bad", ["quince\0", "\ud800quince", "quince\udfff"])
    def test_unclean_text_is_refused_in_every_field(self, stores: Stores, bad: str) -> None:
        pair = ToolResult(call_id="c1", text=bad)
        turns: tuple[list[Event], ...] = (
            [UserMessage(text=bad)],
            [UserMessage(text="a", speaker=bad)],
            [UserMessage(text="a", source_id=bad)],
            [CALL, pair],
            [ToolCall(call_id=bad, name="n"), ToolResult(call_id=bad)],
            [ToolCall(call_id="c1", name=bad), RESULT],
            [Recall(episode_ids=(bad,))],
            [Audit(name=bad)],
            [Failure(code=bad)],
        )
        for turn in turns:
            assert "quince" not in _is_refused(stores, turn)


class TestReplayRule:
    """Who appends has seen everything that is there."""

    def test_append_before_any_replay_is_refused(self, stores: Stores) -> None:
        lease = stores.leases.claim(ANA, begin(stores).id)
        with pytest.raises(ReplayRequired):
            say(stores, lease, "blind")

    def test_replay_that_was_broken_off_is_no_replay(self, stores: Stores) -> None:
        session = begin(stores)
        first = hold(stores, session)
        for text in ("one", "two"):
            say(stores, first, text)
        broken_off = stores.transcript.replay(first)
        next(broken_off)
        del broken_off
        with pytest.raises(ReplayRequired):
            say(stores, first, "half blind")
        stores.leases.release(first)
        lease = stores.leases.claim(ANA, session.id)
        unfinished = stores.transcript.replay(lease)
        next(unfinished)
        with pytest.raises(ReplayRequired):
            say(stores, lease, "half blind")
        assert [stored.sequence for stored in unfinished] == [2]
        assert say(stores, lease, "seen").first_sequence == 3

    @pytest.mark.invariant("INV-13")
    def test_history_that_moved_demands_a_new_replay(self, stores: Stores) -> None:
        session = begin(stores)
        lease = hold(stores, session)
        with Faults() as faults, pytest.raises(Uncertain):
            faults.fail("commit.after", ConnectionError())
            say(stores, lease, "lost on the way back")
        with pytest.raises(StaleReplay) as stale:
            say(stores, lease, "unaware")
        assert stale.value.retryable
        assert [one.event.text for one in stores.transcript.replay(lease)] == [
            "lost on the way back"
        ]
        assert say(stores, lease, "aware").first_sequence == 2


def _of_size(size: int) -> UserMessage:
    bare = len(encode_event(UserMessage(text="x"))) - 1
    return UserMessage(text="x" * (size - bare))


def _is_refused(stores: Stores, events: Sequence[Event]) -> str:
    """The message of the refusal, after which nothing of the turn is there."""
    session = begin(stores)
    lease = hold(stores, session)
    with pytest.raises(InvalidValue) as refused:
        stores.transcript.append_turn(lease, events)
    assert history(stores, session) == []
    return refused.value.message


def _call_is_known(stores: Stores, lease: SessionLease) -> None:
    """A used call id is refused, with an operation id of the caller's own too."""
    for operation_id in (None, OperationId(uuid4())):
        with pytest.raises(InvalidValue):
            stores.transcript.append_turn(lease, [CALL, RESULT], operation_id=operation_id)
