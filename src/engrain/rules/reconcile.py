"""What becomes of the tool calls of a turn, and whether a batch could be published at all.

Recovery decides by what is durable alone: a call that was never marked as started cannot have run,
and one that was may have (INV-30, INV-31).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engrain.contracts import limits
from engrain.contracts.errors import Conflict, InvalidValue, LimitExceeded
from engrain.contracts.events import AssistantMessage, Event, Failure, ToolResult
from engrain.contracts.ids import SessionId
from engrain.contracts.journal import Batch, JournaledCall, OpenTurn, ProposedCall, RecoveryReport
from engrain.rules.canonical import encode_event
from engrain.rules.transitions import CALL, advance, may

APPROVAL_BYTES: Final = 4 * limits.KIB
_NEVER_RUN: Final = "The call was not executed: the agent's process ended before it was started."
_IN_DOUBT: Final = (
    "The effect of this call is unknown: it was started, and the agent's process ended before its "
    "result was stored. It was not run again."
)
_INTERRUPTED: Final = "The agent's process ended before the turn was finished."


def check_batch(batch: Batch, known_calls: set[str]) -> list[Event]:
    """The events of the batch's proposal; raises unless it can be published whatever comes back.

    The calls, the words before them, and for every call a result and an approval of the reserved
    size fit into one append.
    """
    if not 1 <= len(batch.calls) <= limits.batch_calls_max:
        raise LimitExceeded("batch_calls_max", limits.batch_calls_max, len(batch.calls))
    for proposed in batch.calls:
        check_reserve(proposed)
        if proposed.call.call_id in known_calls:
            raise InvalidValue("call_id", "was used before in this session")
    events: list[Event] = [*batch.said, *(proposed.call for proposed in batch.calls)]
    worst = sum(len(encode_event(event)) for event in events)
    worst += sum(proposed.reserved_bytes + APPROVAL_BYTES for proposed in batch.calls)
    if worst > limits.append_bytes_max:
        raise LimitExceeded("append_bytes_max", limits.append_bytes_max, worst)
    return events


def check_reserve(proposed: ProposedCall) -> None:
    """Raises `InvalidValue` unless a diagnostic at least, and one event at most, has room."""
    if not 2 * limits.diagnostic_bytes_max <= proposed.reserved_bytes <= limits.event_bytes_max:
        raise InvalidValue("reserved_bytes", "must be 2 KiB to 4 MiB")


def check_result(known: JournaledCall, result: ToolResult, size: int) -> bool:
    """True when the result is to be stored, False when the very same one is there already.

    Raises `Conflict` for another result or for a call that may not get one now, and
    `LimitExceeded` past the call's reserve.
    """
    if known.result is not None:
        if known.result == result:
            return False
        raise Conflict("the call has another result already")
    if result.status not in ("completed", "failed", "not_executed"):
        raise InvalidValue("status", "must be completed, failed or not_executed")
    if size > known.reserved_bytes:
        raise LimitExceeded("reserved_bytes", known.reserved_bytes, size)
    action = "refuse" if result.status == "not_executed" else "complete"
    if not may(CALL, known.state, action):
        raise Conflict(f"a call that is {known.state} cannot be {result.status}")
    return True


def published(said: Sequence[AssistantMessage], calls: Sequence[JournaledCall]) -> list[Event]:
    """The batch as it stands in history; raises `Conflict` while a result is missing."""
    events: list[Event] = [*said, *(each.call for each in calls)]
    for each in calls:
        if each.result is None:
            raise Conflict("a call of the batch has no result yet")
        if each.approval is not None:
            events.append(each.approval)
        events.append(each.result)
    return events


def reconcile(turn: OpenTurn) -> tuple[JournaledCall, ...]:
    """Every call with a result: the one it has, or what is honestly known without one."""
    return tuple(_reconciled(each) for each in turn.calls)


def recovered(turn: OpenTurn) -> list[Event]:
    """What recovery appends: the batch with honest results, and that the turn was interrupted."""
    calls = reconcile(turn)
    failure = Failure(code="interrupted", text=_INTERRUPTED)
    return [*published(turn.said, calls), failure] if calls else [failure]


def report_of(session_id: SessionId, turn: OpenTurn) -> RecoveryReport:
    """Who became what."""
    by_state = {
        state: tuple(each.call.call_id for each in turn.calls if each.state == state)
        for state in CALL.states
    }
    return RecoveryReport(
        session_id=session_id,
        turn=turn.turn,
        completed=by_state["completed"],
        not_executed=by_state["planned"],
        unknown_effects=by_state["started"],
    )


def _reconciled(each: JournaledCall) -> JournaledCall:
    if each.result is not None:
        return each
    is_started = each.state == "started"
    advance(CALL, each.state, "doubt" if is_started else "refuse")
    result = ToolResult(
        call_id=each.call.call_id,
        status="unknown_effect" if is_started else "not_executed",
        text=_IN_DOUBT if is_started else _NEVER_RUN,
        origin="host",
    )
    return JournaledCall(
        call=each.call,
        state="completed",
        idempotency_key=each.idempotency_key,
        reserved_bytes=each.reserved_bytes,
        approval=each.approval,
        result=result,
    )
