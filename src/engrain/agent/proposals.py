"""What a model wrote, made fit for the record: calls with unique ids, results inside their reserve.

A model may propose anything. Nothing of it is lost in silence: a call that cannot run is kept with
the reason as its result.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import EngrainError, LimitExceeded
from engrain.contracts.events import AssistantMessage, Event, ToolCall, ToolResult
from engrain.contracts.journal import Batch, ProposedCall
from engrain.contracts.text import cut_text, repair_text
from engrain.rules.canonical import encode_event, read_json

_APPROVAL_ROOM = 4 * limits.KIB
_CUT = "\n[cut: the whole result had {size:,} bytes]"
_ANSWER_BYTES_MAX = limits.event_bytes_max // 8


class RequestedCall(msgspec.Struct, frozen=True):
    """A call as the model wrote it, whatever that is. `arguments` should be a JSON object."""

    call_id: str
    name: str
    arguments: str = "{}"


class ModelReply(msgspec.Struct, frozen=True):
    """What a model answered: words, calls or both. Without calls it is the final answer."""

    text: str = ""
    calls: tuple[RequestedCall, ...] = ()


def batch_of(
    reply: ModelReply, known_calls: Container[str], reserves: Sequence[int]
) -> tuple[Batch, tuple[str | None, ...]]:
    """The batch to plan, and for each call why it cannot run, or None.

    `reserves` are the most that each result may take; they shrink when all of them together would
    not fit into one append. Raises `LimitExceeded` for more calls than a batch may have.
    """
    if len(reply.calls) > limits.batch_calls_max:
        raise LimitExceeded("batch_calls_max", limits.batch_calls_max, len(reply.calls))
    taken: set[str] = set()
    calls, reasons = [], []
    for requested in reply.calls:
        call_id = _unique_id(requested.call_id, known_calls, taken)
        taken.add(call_id)
        arguments, why = _object_of(requested.arguments)
        name = cut_text(repair_text(requested.name)[0], limits.call_name_bytes_max) or "unnamed"
        calls.append(ToolCall(call_id=call_id, name=name, arguments=arguments))
        reasons.append(why)
    said = tuple(said_by_model(reply.text))
    share = _share(said, calls)
    proposed = (
        ProposedCall(call, min(reserve, share))
        for call, reserve in zip(calls, reserves, strict=True)
    )
    return Batch(tuple(proposed), said), tuple(reasons)


def said_by_model(text: str) -> list[AssistantMessage]:
    """The words as an event, or none for blank ones; repaired and cut where they must be."""
    clean, is_repaired = repair_text(text)
    if not clean.strip():
        return []
    return [AssistantMessage(text=cut_text(clean, _ANSWER_BYTES_MAX), repaired=is_repaired)]


def fit_result(result: ToolResult, bytes_max: int) -> ToolResult:
    """The result, its text repaired and cut on a code point so that it is stored in `bytes_max`."""
    text, is_repaired = repair_text(result.text)
    fitted = msgspec.structs.replace(result, text=text, repaired=is_repaired)
    size = len(text.encode())
    room = bytes_max
    while room > 0 and not _fits(fitted, bytes_max):
        room = room * 3 // 4  # escapes may make six bytes of one
        kept = cut_text(text, room) + _CUT.format(size=size)
        fitted = msgspec.structs.replace(fitted, text=kept)
    return fitted


def _fits(result: ToolResult, bytes_max: int) -> bool:
    if len(result.text) > bytes_max:
        return False
    try:
        return len(encode_event(result)) <= bytes_max
    except LimitExceeded:
        return False


def _share(said: Sequence[AssistantMessage], calls: Sequence[ToolCall]) -> int:
    """What each result may take at most so that the batch fits into one append."""
    proposal: list[Event] = [*said, *calls]
    taken = sum(len(encode_event(event)) for event in proposal)
    left = limits.append_bytes_max - taken - len(calls) * _APPROVAL_ROOM
    return max(left // max(len(calls), 1), 0)


def _unique_id(wanted: str, known: Container[str], taken: Container[str]) -> str:
    base = cut_text(repair_text(wanted)[0], limits.call_name_bytes_max) or "call"
    candidate, number = base, 1
    while candidate in known or candidate in taken:
        number += 1
        candidate = f"{base}~{number}"
    return candidate


def _object_of(arguments: str) -> tuple[str, str | None]:
    """The arguments to record and why they cannot be used, or None."""
    clean, is_repaired = repair_text(arguments)
    try:
        value = read_json(clean, bytes_max=limits.event_bytes_max)
        why = None if isinstance(value, dict) else "the arguments are no JSON object"
    except EngrainError:
        why = "the arguments are no JSON inside the bounds"
    if why is None and not is_repaired:
        return clean, None
    if why is None:
        return clean, "the arguments hold text that is not valid Unicode"
    kept = cut_text(clean, limits.diagnostic_bytes_max)
    return json.dumps({"invalid_arguments": kept}, ensure_ascii=False), why
