"""What happens in a session, as a closed union of events.

Every event carries its words in `text` (empty where it has none), who is behind it in `origin`,
when its source says it happened in `occurred_at` (UTC microseconds, None when unsaid), and the
original id of an imported event in `source_id`. `repaired` records that the text rule had to
replace code points.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engrain.contracts.text import require_text


class _Spoken(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False
):  # without cycles, so that ten thousand of them cost the garbage collector nothing
    text: str = ""
    origin: str = "host"
    speaker: str | None = None
    occurred_at: int | None = None
    source_id: str | None = None
    repaired: bool = False


class System(_Spoken, frozen=True, kw_only=True, omit_defaults=True, tag="system"):
    """An instruction that the host set; nobody's words."""


class UserMessage(_Spoken, frozen=True, kw_only=True, omit_defaults=True, tag="user_message"):
    """What a person said. `speaker` names which one where several talk."""

    origin: str = "user"


class AssistantMessage(
    _Spoken, frozen=True, kw_only=True, omit_defaults=True, tag="assistant_message"
):
    """What the agent answered."""

    origin: str = "model"


class ToolCall(_Spoken, frozen=True, kw_only=True, omit_defaults=True, tag="tool_call"):
    """A request to run a tool; `arguments` is the JSON text as the model wrote it."""

    call_id: str
    name: str
    arguments: str = "{}"
    origin: str = "model"


ResultStatus = Literal["completed", "failed", "missing", "not_executed", "unknown_effect"]


class ToolResult(_Spoken, frozen=True, kw_only=True, omit_defaults=True, tag="tool_result"):
    """What came back for the call; `missing` means that the source never recorded it."""

    call_id: str
    status: ResultStatus = "completed"


class Approval(_Spoken, frozen=True, kw_only=True, omit_defaults=True, tag="approval"):
    """A person's word on one call."""

    call_id: str
    is_allowed: bool


class Audit(_Spoken, frozen=True, kw_only=True, omit_defaults=True, tag="audit"):
    """A fact about the run, for people; the model does not see it."""

    name: str


class Recall(_Spoken, frozen=True, kw_only=True, omit_defaults=True, tag="recall"):
    """What memory gave the model; never learned again as fresh evidence."""

    episode_ids: tuple[str, ...] = ()
    tokens: int = 0


class Summary(_Spoken, frozen=True, kw_only=True, omit_defaults=True, tag="summary"):
    """Stands for a verified prefix; written by compaction alone."""

    covers_sequence: int
    covers_link: str
    origin: str = "model"


class Failure(_Spoken, frozen=True, kw_only=True, omit_defaults=True, tag="error"):
    """A bounded diagnostic of a turn that failed."""

    code: str


class Erased(_Spoken, frozen=True, kw_only=True, omit_defaults=True, tag="erased"):
    """Stands in replay where an event was forgotten; never stored, never appended.

    `was` is the kind that the header still shows.
    """

    was: str


Event = (
    System
    | UserMessage
    | AssistantMessage
    | ToolCall
    | ToolResult
    | Approval
    | Audit
    | Recall
    | Summary
    | Failure
)

EVENT_TYPES: tuple[type[Event], ...] = (
    System,
    UserMessage,
    AssistantMessage,
    ToolCall,
    ToolResult,
    Approval,
    Audit,
    Recall,
    Summary,
    Failure,
)
EVENT_KINDS: tuple[str, ...] = tuple(str(t.__struct_config__.tag) for t in EVENT_TYPES)
KIND_OF: dict[type, str] = dict(zip(EVENT_TYPES, EVENT_KINDS, strict=True))


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event with the header that the store gave it.

    `sequence` counts from 1 without gaps in its session; `turn` is the sequence of the first event
    of its agent turn; `recorded_at` is when its batch was committed.
    """

    sequence: int
    turn: int
    recorded_at: int
    event: Event | Erased


class Turn(msgspec.Struct, frozen=True):
    """Events that are appended together or not at all."""

    events: tuple[Event, ...]

    @classmethod
    def said(cls, text: str, *, reply: str | None = None, speaker: str | None = None) -> Turn:
        """What a user said and, when given, what the agent replied."""
        require_text(text, "text")
        for field, value in (("reply", reply), ("speaker", speaker)):
            if value is not None:
                require_text(value, field)
        said = UserMessage(text=text, speaker=speaker)
        return cls((said,) if reply is None else (said, AssistantMessage(text=reply)))
