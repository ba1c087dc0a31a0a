"""How a reader's events become agent turns that the transcript accepts.

Owns the turn rule for every format: tool calls and results stand as whole, adjacent pairs in
order, ids are unique in the session, no text is empty, and nothing is over the bounds. Each
decision follows from what came before it alone, so that a grown file gives its old events again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from engrain.contracts import limits
from engrain.contracts.events import (
    Approval,
    AssistantMessage,
    Audit,
    Event,
    System,
    ToolCall,
    ToolResult,
    UserMessage,
)
from engrain.contracts.imports import ImportedEvent, ImportItem, SessionBegins, Skipped, TurnRead
from engrain.contracts.text import REPLACEMENT, cut_text, repair_text
from engrain.formats.documents import arguments_text

speaker_bytes_max: Final = 256
unnamed_tool: Final = "unnamed"

_TEXT_FIELDS: Final = ("text", "speaker", "call_id", "name", "arguments")
_INVISIBLE: Final = (Approval, Audit)
_SPOKEN: Final = (UserMessage, AssistantMessage, System)


class _Pair(msgspec.Struct):
    """A call and, once it was read, what came back."""

    source_call_id: str
    group: str | None
    call: ImportedEvent
    result: ImportedEvent | None = None


class TurnBuilder:
    """Collects one session's events; hands back turns and skips as soon as they are certain."""

    def __init__(self, origin: str | None = None) -> None:
        """`origin` is written on every event; None keeps each event's own."""
        self._origin = origin
        self._ready: list[ImportItem] = []
        self._turn: list[ImportedEvent] = []
        self._turn_bytes = 0
        self._batch: list[_Pair] = []
        self._unanswered: dict[str, deque[_Pair]] = {}
        self._seen: set[tuple[str, int]] = set()
        self._source_ids: dict[str, int] = {}
        self._call_ids: dict[str, int] = {}

    def add(
        self,
        event: Event,
        source_id: str,
        *,
        group: str | None = None,
        starts_turn: bool | None = None,
        is_repaired: bool = False,
    ) -> list[ImportItem]:
        """Takes the next event of the source; gives what became certain by it.

        `group` names the message that a call or its text belongs to: text of the same message goes
        before its calls. A turn starts at a user's message unless `starts_turn` says otherwise.
        `is_repaired` says that replaced code points in the text may be ours.
        """
        imported = self._fit(event, source_id, is_repaired)
        if imported is not None:
            starts = isinstance(event, UserMessage) if starts_turn is None else starts_turn
            self._take(imported, group, starts)
        return self._given()

    def skip(self, where: str, why: str, count: int = 1) -> list[ImportItem]:
        """A skip in its place among the items."""
        self._ready.append(Skipped(where, why, count))
        return self._given()

    def finish(self) -> list[ImportItem]:
        """The last turn. Calls still open are held back: the source may still be growing."""
        for pair in self._batch:
            if pair.result is None:
                self._ready.append(Skipped(pair.call.source_id, "open_call"))
        self._place_batch()
        self._end_turn()
        return self._given()

    def _given(self) -> list[ImportItem]:
        ready, self._ready = self._ready, []
        return ready

    # Fitting one event ---------------------------------------------------------------------------

    def _fit(self, event: Event, source_id: str, is_repaired: bool) -> ImportedEvent | None:
        """The event inside the text rule and the bounds under an id of its own, or None."""
        source_id = repair_text(source_id)[0]
        if why := _unfit_word(event):
            self._ready.append(Skipped(source_id, why))
            return None
        event = self._clean(event, is_repaired)
        unique = self._unique_source(source_id, event)
        fitted = fit_text(msgspec.structs.replace(event, source_id=unique or source_id))
        if unique is None or fitted is None:
            why = "repeated" if unique is None else "too_large"
            self._ready.append(Skipped(source_id, why))
            return None
        if fitted.text != event.text:
            self._ready.append(Skipped(unique, "cut_text"))
        return ImportedEvent(unique, fitted)

    def _clean(self, event: Event, is_repaired: bool) -> Event:
        changes: dict[str, object] = {}
        for name in _TEXT_FIELDS:
            value = getattr(event, name, None)
            if value:
                text, was_bad = repair_text(value)
                if was_bad or (is_repaired and REPLACEMENT in text):
                    changes |= {name: text, "repaired": True}
        if self._origin is not None:
            changes["origin"] = self._origin
        if event.speaker is not None:
            named = str(changes.get("speaker", event.speaker)).strip()
            changes["speaker"] = cut_text(named, speaker_bytes_max) or None
        if isinstance(event, ToolCall):
            changes["arguments"] = arguments_text(event.arguments)
            if not event.name.strip():
                changes["name"] = unnamed_tool
        return msgspec.structs.replace(event, **changes)

    def _unique_source(self, source_id: str, event: Event) -> str | None:
        """The id, numbered when another event has it; None when this very event came before."""
        mark = (source_id, hash(event))
        if mark in self._seen:
            return None
        self._seen.add(mark)
        return _numbered(self._source_ids, source_id)

    # Ordering ------------------------------------------------------------------------------------

    def _take(self, imported: ImportedEvent, group: str | None, starts: bool) -> None:
        event = imported.event
        if isinstance(event, ToolCall):
            self._open(imported, event, group)
        elif isinstance(event, ToolResult):
            self._settle(imported, event)
        elif self._is_open and (isinstance(event, _INVISIBLE) or self._is_of(group)):
            self._place([imported])
        else:
            self._close_batch()
            if starts:
                self._end_turn()
            self._place([imported])

    @property
    def _is_open(self) -> bool:
        return bool(self._unanswered)

    def _is_of(self, group: str | None) -> bool:
        """True when the calls that were read last belong to the message `group`."""
        return bool(self._batch) and group is not None and self._batch[-1].group == group

    def _open(self, imported: ImportedEvent, call: ToolCall, group: str | None) -> None:
        if not self._is_open and not self._is_of(group):
            self._close_batch()
        named = msgspec.structs.replace(call, call_id=_numbered(self._call_ids, call.call_id))
        pair = _Pair(call.call_id, group, ImportedEvent(imported.source_id, named))
        self._batch.append(pair)
        self._unanswered.setdefault(call.call_id, deque()).append(pair)

    def _settle(self, imported: ImportedEvent, result: ToolResult) -> None:
        """Gives the result to the oldest open call of its id."""
        waiting = self._unanswered.get(result.call_id)
        if not waiting:
            self._ready.append(Skipped(imported.source_id, "orphan_result"))
            return
        pair = waiting.popleft()
        pair.result = _answer(pair, imported.source_id, result)
        if not waiting:
            del self._unanswered[result.call_id]

    def _close_batch(self) -> None:
        """Ends the run of calls; what the source never answered gets a `missing` result."""
        for pair in self._batch:
            if pair.result is None:
                missing = ToolResult(
                    call_id=pair.source_call_id, status="missing", origin=pair.call.event.origin
                )
                pair.result = _answer(pair, f"{pair.call.source_id}/missing", missing)
        self._place_batch()

    def _place_batch(self) -> None:
        """Calls that have results, then the results; in several runs where one is too large."""
        calls: list[ImportedEvent] = []
        results: list[ImportedEvent] = []
        size = 0
        for pair in self._batch:
            if pair.result is None:
                continue
            pair_size = _size_of(pair.call) + _size_of(pair.result)
            if calls and not _has_room(2 * len(calls), size, 2, pair_size):
                self._place(calls + results)
                calls, results, size = [], [], 0
            calls.append(pair.call)
            results.append(pair.result)
            size += pair_size
        self._place(calls + results)
        self._batch = []
        self._unanswered.clear()

    def _place(self, unit: list[ImportedEvent]) -> None:
        """Adds events that belong together; a turn without room for them ends before them."""
        size = sum(map(_size_of, unit))
        if not _has_room(len(self._turn), self._turn_bytes, len(unit), size):
            self._end_turn()
        self._turn += unit
        self._turn_bytes += size

    def _end_turn(self) -> None:
        if self._turn:
            self._ready.append(TurnRead(tuple(self._turn)))
        self._turn, self._turn_bytes = [], 0


def iter_session(begins: SessionBegins, items: Iterable[ImportItem]) -> Iterator[ImportItem]:
    """A session's items, its name before the first turn; `empty_session` where there is none."""
    has_begun = False
    for item in items:
        if isinstance(item, TurnRead) and not has_begun:
            has_begun = True
            yield begins
        yield item
    if not has_begun:
        yield Skipped(begins.source_id, "empty_session")


def _unfit_word(event: Event) -> str:
    """Why no transcript can hold the event, or the empty text."""
    if isinstance(event, _SPOKEN) and not event.text.strip():
        return "empty"
    return "no_call_id" if isinstance(event, ToolCall | Approval) and not event.call_id else ""


def fit_text(event: Event) -> Event | None:
    """The event inside `event_bytes_max`, its text cut where it must be; None if it cannot be."""
    size = len(msgspec.json.encode(event))
    if size <= limits.event_bytes_max:
        return event
    if not event.text:
        return None
    room = limits.event_bytes_max - (size - len(msgspec.json.encode(event.text)))
    text = event.text
    while text and (encoded := len(msgspec.json.encode(text))) > room:
        text = cut_text(text, max(0, len(text.encode()) * max(room, 0) // encoded))
    return msgspec.structs.replace(event, text=text) if text else None


def _numbered(taken: dict[str, int], name: str) -> str:
    """The name, or the name and a number where it was taken before."""
    unique = name
    while unique in taken:
        taken[name] += 1
        unique = f"{name}#{taken[name]}"
    taken[unique] = 1
    return unique


def _answer(pair: _Pair, source_id: str, result: ToolResult) -> ImportedEvent:
    call = pair.call.event
    assert isinstance(call, ToolCall)
    named = msgspec.structs.replace(result, call_id=call.call_id, source_id=source_id)
    return ImportedEvent(source_id, named)


def _size_of(imported: ImportedEvent) -> int:
    return len(msgspec.json.encode(imported.event))


def _has_room(count: int, size: int, more: int, more_size: int) -> bool:
    return count + more <= limits.append_events_max and size + more_size <= limits.append_bytes_max
