"""Claude.ai exports: `conversations.json` with `chat_messages`, linear or with branches.

Words are read from `content`, from `text` only where `content` has none. What a person pasted or
attached stands in `attachments` and follows their words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from engrain.contracts.events import AssistantMessage, Event, ToolCall, ToolResult, UserMessage
from engrain.contracts.imports import ImportItem, SessionBegins, Skipped, SourceFile
from engrain.formats.documents import (
    Document,
    Record,
    arguments_text,
    id_of,
    list_of,
    micros_of_iso,
    read_elements,
    record_of,
    records_of,
    text_of,
    title_of,
    words,
)
from engrain.formats.turns import TurnBuilder, iter_session

_MESSAGES: Final = re.compile(rb'"chat_messages"\s*:')
_SPOKEN_PARTS: Final = ("text", "tool_use", "tool_result")
_SKIPPED_PARTS: Final = {
    "thinking": "thinking",
    "redacted_thinking": "thinking",
    "image": "picture",
    "token_budget": "unknown_part",
}


class ClaudeReader:
    """Reads the export of Claude.ai and the same conversations as its web application has them."""

    name = "claude"
    passes = 1

    def recognises(self, name: str, head: bytes) -> bool:
        return name.lower().endswith(".json") and bool(_MESSAGES.search(head))

    def read(self, file: SourceFile) -> Iterator[ImportItem]:
        return read_elements(file, lambda *found: _Conversation(*found).items())


def pick_line(messages: list[Record], leaf: str) -> list[Record]:
    """The messages from the root to `leaf` (else the last one), in order.

    A message without a known parent follows the one before it in the file, unless it is a root.
    """
    place = {id_of(message.get("uuid")): index for index, message in enumerate(messages)}
    index = place.get(leaf, len(messages) - 1) if leaf else len(messages) - 1
    line: list[Record] = []
    seen: set[int] = set()
    while index >= 0 and index not in seen:
        seen.add(index)
        line.append(messages[index])
        index = _parent_index(messages[index], place, index)
    return line[::-1]


def _parent_index(message: Record, place: dict[str, int], index: int) -> int:
    parent = id_of(message.get("parent_message_uuid"))
    if _is_root(parent):
        return -1
    return place.get(parent, index - 1) if parent else index - 1


def _is_root(parent: str) -> bool:
    """True for the id that stands above every first message: zeros but for version digits."""
    return bool(re.fullmatch(r"0{8}-0{4}-[04]0{3}-[08]0{3}-0{12}", parent))


class _Conversation:
    """One conversation on its way into turns."""

    def __init__(self, document: Document, place: str) -> None:
        self._document = document
        self._record = document.record
        self._builder = TurnBuilder("import:claude")
        self._source_id = id_of(self._record.get("uuid")) or place

    def items(self) -> Iterator[ImportItem]:
        if "chat_messages" not in self._record:
            yield Skipped(self._document.piece.where, "not_a_conversation")
            return
        begins = SessionBegins(
            source_id=self._source_id,
            title=title_of(self._record.get("name")),
            started_at=micros_of_iso(self._record.get("created_at")),
        )
        yield from iter_session(begins, self._turns())

    def _turns(self) -> Iterator[ImportItem]:
        messages = records_of(self._record.get("chat_messages"))
        line = pick_line(messages, id_of(self._record.get("current_leaf_message_uuid")))
        if len(line) < len(messages):
            yield Skipped(self._source_id, "branch", len(messages) - len(line))
        for position, message in enumerate(line, start=1):
            yield from self._message(message, id_of(message.get("uuid")) or str(position))
        yield from self._builder.finish()

    def _message(self, message: Record, source_id: str) -> Iterator[ImportItem]:
        sender = text_of(message.get("sender"))
        if message.get("truncated") is True:
            yield from self._builder.skip(source_id, "truncated")
        if files := _count_files(message):
            yield from self._builder.skip(source_id, "file", files)
        if sender == "human":
            yield from self._said(message, source_id)
        elif sender == "assistant":
            yield from self._answered(message, source_id)
        else:
            yield from self._builder.skip(source_id, "unknown_sender")

    def _said(self, message: Record, source_id: str) -> Iterator[ImportItem]:
        texts: list[str] = []
        for part in _parts(message):
            if part.get("type") == "text":
                texts.append(text_of(part.get("text")))
            else:
                yield from self._builder.skip(source_id, _skip_word(part))
        event = UserMessage(
            text=words([*texts, *_attached(message)]),
            occurred_at=micros_of_iso(message.get("created_at")),
        )
        yield from self._add(event, source_id)

    def _answered(self, message: Record, source_id: str) -> Iterator[ImportItem]:
        occurred_at = micros_of_iso(message.get("created_at"))
        waiting: list[tuple[str, str]] = []
        parts = _parts(message)
        if not parts:
            yield from self._builder.skip(source_id, "empty")
        for index, part in enumerate(parts):
            part_id = f"{source_id}/{index}" if index else source_id
            at = micros_of_iso(part.get("start_timestamp")) or occurred_at
            if part.get("type") == "text":
                event: Event = AssistantMessage(text=text_of(part.get("text")), occurred_at=at)
            elif part.get("type") == "tool_use":
                event = _call(part, part_id, at)
                waiting.append((event.call_id, event.name))
            elif part.get("type") == "tool_result":
                event = _result(part, waiting, at)
                yield from self._unread_results(part, part_id)
            else:
                yield from self._builder.skip(part_id, _skip_word(part))
                continue
            yield from self._add(event, part_id)

    def _unread_results(self, part: Record, part_id: str) -> Iterator[ImportItem]:
        for inner in records_of(part.get("content")):
            if "text" not in inner:
                yield from self._builder.skip(part_id, _skip_word(inner))

    def _add(self, event: Event, source_id: str) -> list[ImportItem]:
        return self._builder.add(event, source_id, is_repaired=self._document.is_repaired)


def _parts(message: Record) -> list[Record]:
    """The parts of `content` that are not blank, and `text` where none of them was said or done.

    Beside a tool's part `text` holds nothing but a note that the block cannot be shown.
    """
    parts = [part for part in records_of(message.get("content")) if not _is_blank(part)]
    text = text_of(message.get("text"))
    if any(part.get("type") in _SPOKEN_PARTS for part in parts) or not text.strip():
        return parts
    return [*parts, {"type": "text", "text": text}]


def _is_blank(part: Record) -> bool:
    return part.get("type") == "text" and not text_of(part.get("text")).strip()


def _skip_word(part: Record) -> str:
    return _SKIPPED_PARTS.get(text_of(part.get("type")), "unknown_part")


def _call(part: Record, part_id: str, at: int | None) -> ToolCall:
    return ToolCall(
        call_id=id_of(part.get("id")) or part_id,
        name=text_of(part.get("name")),
        arguments=arguments_text(part.get("input") or {}),
        occurred_at=at,
    )


def _result(part: Record, waiting: list[tuple[str, str]], at: int | None) -> ToolResult:
    """The result, for the call that it names, else for the oldest one of its tool, else any."""
    named = id_of(part.get("tool_use_id"))
    tool = text_of(part.get("name"))
    by_id = [call for call in waiting if call[0] == named]
    by_name = [call for call in waiting if call[1] == tool]
    chosen = by_id or ([] if named else by_name or waiting)
    if chosen:
        waiting.remove(chosen[0])
    return ToolResult(
        call_id=chosen[0][0] if chosen else named,
        text=_result_text(part.get("content")),
        status="failed" if part.get("is_error") is True else "completed",
        occurred_at=at,
    )


def _result_text(content: object) -> str:
    if isinstance(content, str):
        return content
    return words(text_of(record_of(part).get("text")) for part in list_of(content))


def _attached(message: Record) -> Iterator[str]:
    for attachment in records_of(message.get("attachments")):
        text = text_of(attachment.get("extracted_content"))
        name = text_of(attachment.get("file_name")).strip()
        if text.strip():
            yield f"[attachment: {name}]\n{text}" if name else f"[attachment]\n{text}"


def _count_files(message: Record) -> int:
    """Files whose content is not in the export; the two lists repeat each other."""
    listed = records_of(message.get("files")) + records_of(message.get("files_v2"))
    names = {
        text_of(file.get("file_name")) or text_of(file.get("file_uuid")) or str(position)
        for position, file in enumerate(listed)
    }
    attached = records_of(message.get("attachments"))
    return len(names) + sum(not text_of(a.get("extracted_content")).strip() for a in attached)
