"""What may enter the record: turns that any model provider accepts, and sound episodes.

Owns the pair rule (INV-12). A run of tool calls is followed by exactly as many results in the
same order, with nothing that the model sees between the first call and the last result. Approval
and audit events are invisible to the model and may stand anywhere. Calls and their results go
into one append together, so that no crash can leave half a pair behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from typing import Any, Final

from engrain.contracts import limits
from engrain.contracts.episodes import NewEpisode
from engrain.contracts.errors import EngrainError, InvalidValue, LimitExceeded
from engrain.contracts.events import (
    KIND_OF,
    Approval,
    AssistantMessage,
    Audit,
    Erased,
    Event,
    Failure,
    Recall,
    StoredEvent,
    Summary,
    System,
    ToolCall,
    ToolResult,
    UserMessage,
)
from engrain.contracts.scope import Origin, Sensitivity
from engrain.contracts.text import require_short_text, require_text
from engrain.rules.canonical import read_json

_SEQUENCE_MAX: Final = 2**32 - 1
_ORDINAL_MAX: Final = 2**31 - 1
_INVISIBLE: Final = frozenset({"approval", "audit"})
_UNPAIRED: Final = frozenset(KIND_OF) - {ToolCall, ToolResult}
_PLAIN_ORIGINS: Final = frozenset({"host", "user", "model"})


class PairChecker:
    """Checks the pair rule over a stream of events; each verb says what is wrong, or None.

    An erased event counts as the kind that it was: it pairs by its place, since its call id is
    forgotten.
    """

    __slots__ = ("_answered", "_calls")

    def __init__(self) -> None:
        self._calls: list[str | None] = []  # those that wait for results, answered ones included
        self._answered = 0

    def feed(self, event: Event | Erased) -> str | None:
        """Takes the next event."""
        kind = type(event)
        if kind in _UNPAIRED and not self._calls:
            return None
        if isinstance(event, ToolCall):
            return self._feed_call(event.call_id)
        if isinstance(event, ToolResult):
            return self._feed_result(event.call_id)
        return self._feed_other(event.was if isinstance(event, Erased) else KIND_OF[kind])

    def feed_all(self, events: Sequence[StoredEvent], call_ids: set[str]) -> tuple[int, str] | None:
        """Takes the next events up to the first that is wrong: its place here, and what it is.

        The ids of their calls are added to `call_ids`.
        """
        calls, unpaired = self._calls, _UNPAIRED
        for at, stored in enumerate(events):
            event = stored.event
            if type(event) in unpaired:
                if not calls:
                    continue
            elif isinstance(event, ToolCall):
                call_ids.add(event.call_id)
                if not calls:
                    calls.append(event.call_id)
                    continue
            elif isinstance(event, ToolResult) and calls == [event.call_id]:
                calls.clear()
                continue
            if why := self.feed(event):
                return at, why
        return None

    def finish(self) -> str | None:
        """Ends the stream: no call may be left without its result."""
        return "a tool call has no result" if self._calls else None

    def _feed_other(self, kind: str) -> str | None:
        if kind in _INVISIBLE:
            return None
        if kind == "tool_call":
            return self._feed_call(None)
        if kind == "tool_result":
            return self._feed_result(None)
        return "stands between a tool call and its result" if self._calls else None

    def _feed_call(self, call_id: str | None) -> str | None:
        if self._answered:
            return "a call before the results of earlier calls"
        if call_id is not None and call_id in self._calls:
            return "a call id stands twice among calls that go together"
        self._calls.append(call_id)
        return None

    def _feed_result(self, call_id: str | None) -> str | None:
        if not self._calls:
            return "a tool result without its call directly before"
        expected = self._calls[self._answered]
        if None not in (call_id, expected) and call_id != expected:
            return "a tool result out of the order of its calls"
        self._answered += 1
        if self._answered == len(self._calls):
            self._calls.clear()
            self._answered = 0
        return None


def check_append(events: Sequence[Event], *, known_calls: Container[str] = ()) -> None:
    """Raises `InvalidValue` (its field is like `events[3]`) unless the turn may be stored.

    A turn has 1 to `append_events_max` events of kinds that callers may write (`summary` comes
    from compaction alone, `erased` from nobody), keeps the pair rule (INV-12), names each tool
    call once and none of `known_calls`, gives each call a JSON object inside the bounds as its
    arguments (INV-06), and has no blank system, user or assistant text. An
    assistant message that only calls tools is left out, not stored blank.
    """
    if not 1 <= len(events) <= limits.append_events_max:
        raise InvalidValue("events", f"1 to {limits.append_events_max:,} in one turn")
    pairs = PairChecker()
    call_ids: set[str] = set()
    for index, event in enumerate(events):
        why = _WRONG.get(type(event), _wrong_kind)(event) or pairs.feed(event)
        if type(event) is ToolCall and not why:
            is_known = event.call_id in call_ids or event.call_id in known_calls
            why = "its call id was used before" if is_known else None
            call_ids.add(event.call_id)
        if why:
            raise InvalidValue(f"events[{index}]", why)
    if why := pairs.finish():
        raise InvalidValue(f"events[{len(events) - 1}]", why)


def _wrong_words(event: System | UserMessage | AssistantMessage) -> str | None:
    words: object = event.text
    if not isinstance(words, str):
        return "its text is no text"
    return _wrong_source(event) if words.strip() else "has no text"


def _wrong_call(call: ToolCall) -> str | None:
    """What a provider would refuse about the call: its arguments are an object (INV-06)."""
    if not call.call_id:
        return "has no call id"
    if not call.name:
        return "names no tool"
    try:
        arguments = read_json(call.arguments, bytes_max=limits.event_bytes_max)
    except (EngrainError, TypeError):
        return "its arguments are no JSON inside the bounds"
    return _wrong_source(call) if type(arguments) is dict else "its arguments are no JSON object"


def _wrong_answer(event: ToolResult | Approval) -> str | None:
    return _wrong_source(event) if event.call_id else "has no call id"


def _wrong_summary(_: Summary) -> str:
    return "a summary is written by compaction alone"


def _wrong_kind(_: object) -> str:
    return "is not a kind of event that can be stored"


def _wrong_source(event: Event) -> str | None:
    """Who is behind it, and when that was."""
    if event.occurred_at is not None and not _is_int64(event.occurred_at):
        return "occurred_at is not a time in microseconds"
    return None if _is_origin(event.origin) else "has an unknown origin"


_WRONG: Final[dict[type, Callable[[Any], str | None]]] = {
    **dict.fromkeys((System, UserMessage, AssistantMessage), _wrong_words),
    **dict.fromkeys((ToolResult, Approval), _wrong_answer),
    **dict.fromkeys((Audit, Recall, Failure), _wrong_source),
    ToolCall: _wrong_call,
    Summary: _wrong_summary,
}
"""What each kind of event must keep; the rule says what is wrong, or None."""


def _is_origin(origin: str) -> bool:
    try:
        return origin in _PLAIN_ORIGINS or bool(Origin(origin))
    except (InvalidValue, TypeError):
        return False


def _is_int64(value: object) -> bool:
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and limits.json_integer_min <= value <= limits.json_integer_max
    )


def check_episode(episode: NewEpisode) -> None:
    """Raises `InvalidValue` or `LimitExceeded` unless the episode may be stored.

    Its text is clean, not blank and at most `episode_text_bytes_max`; importance lies in 0..1;
    sequences, ordinal and times are in order and in range; labels and speaker keep their bounds.
    """
    if not isinstance(episode, NewEpisode):
        raise InvalidValue("episodes", "must each be a NewEpisode")
    require_short_text(episode.text, "episode_text", limits.episode_text_bytes_max)
    if episode.speaker is not None:
        require_short_text(episode.speaker, "speaker", limits.title_bytes_max)
    _check_coordinates(episode)
    _check_occurred(episode.occurred_from, episode.occurred_to)
    _check_importance(episode.importance)
    _check_labels(episode.labels)
    if not _is_origin(require_text(episode.origin, "origin")):
        raise InvalidValue("origin", "must be host, user, model, tool:NAME or import:FORMAT")
    if not isinstance(episode.sensitivity, Sensitivity):
        raise InvalidValue("sensitivity", "must be a Sensitivity")


def _check_coordinates(episode: NewEpisode) -> None:
    first, last, ordinal = episode.first_sequence, episode.last_sequence, episode.ordinal
    if not (_is_int64(first) and _is_int64(last) and 1 <= first <= last <= _SEQUENCE_MAX):
        raise InvalidValue("first_sequence", "must be 1 <= first_sequence <= last_sequence")
    if not (_is_int64(ordinal) and 0 <= ordinal <= _ORDINAL_MAX):
        raise InvalidValue("ordinal", f"must be 0 to {_ORDINAL_MAX:,}")


def _check_occurred(since: int | None, until: int | None) -> None:
    for field, value in (("occurred_from", since), ("occurred_to", until)):
        if value is not None and not _is_int64(value):
            raise InvalidValue(field, "is not a time in microseconds")
    if since is not None and until is not None and since > until:
        raise InvalidValue("occurred_to", "must not lie before occurred_from")


def _check_importance(importance: float) -> None:
    is_number = isinstance(importance, int | float) and not isinstance(importance, bool)
    if not (is_number and math.isfinite(importance) and 0 <= importance <= 1):
        raise InvalidValue("importance", "must be a number from 0 to 1")


def _check_labels(labels: tuple[str, ...]) -> None:
    if not isinstance(labels, tuple):
        raise InvalidValue("labels", "must be a tuple of text")
    if len(labels) > limits.labels_max:
        raise LimitExceeded("labels_max", limits.labels_max, len(labels))
    for label in labels:
        require_short_text(label, "label", limits.label_bytes_max)
