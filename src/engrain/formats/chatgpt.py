"""ChatGPT exports: `conversations.json` with a tree of messages under `mapping`.

The line that is read goes from `current_node` up to the root; regenerated and edited siblings are
counted. A message to another recipient than "all" is a tool call, the tool's messages right after
it are its result.
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
    micros_of_seconds,
    read_elements,
    record_of,
    text_of,
    title_of,
    words,
)
from engrain.formats.turns import TurnBuilder, iter_session

_MAPPING: Final = re.compile(rb'"mapping"\s*:\s*\{')

_TEXT_KEYS: Final = {
    "code": "text",
    "execution_output": "text",
    "tether_quote": "text",
    "tether_browsing_display": "result",
    "sonic_webpage": "text",
    "system_error": "text",
}
_TOOL_OUTPUT: Final = frozenset(_TEXT_KEYS) - {"code"}
_SKIPPED_CONTENT: Final = {
    "thoughts": "thinking",
    "reasoning_recap": "thinking",
    "user_editable_context": "custom_instructions",
    "model_editable_context": "custom_instructions",
}
_SKIPPED_PARTS: Final = {
    "image_asset_pointer": "picture",
    "audio_asset_pointer": "audio",
    "real_time_user_audio_video_asset_pointer": "audio",
    "video_container_asset_pointer": "audio",
}


class ChatGptReader:
    """Reads the export of ChatGPT."""

    name = "chatgpt"
    passes = 1

    def recognises(self, name: str, head: bytes) -> bool:
        return name.lower().endswith(".json") and bool(_MAPPING.search(head))

    def read(self, file: SourceFile) -> Iterator[ImportItem]:
        return read_elements(file, lambda *found: _Conversation(*found).items())


def pick_line(mapping: Record, current: str) -> list[Record]:
    """The nodes from the root to `current`; without it to the last node that nobody answers."""
    key = current if current in mapping else _last_leaf(mapping)
    line: list[Record] = []
    seen: set[str] = set()
    while key in mapping and key not in seen:
        seen.add(key)
        node = record_of(mapping[key])
        line.append(node)
        key = text_of(node.get("parent"))
    return line[::-1]


def _last_leaf(mapping: Record) -> str:
    leaves = [key for key, node in mapping.items() if not list_of(record_of(node).get("children"))]
    return leaves[-1] if leaves else next(reversed(mapping), "")


class _Conversation:
    """One conversation on its way into turns."""

    def __init__(self, document: Document, place: str) -> None:
        self._document = document
        self._record = document.record
        self._builder = TurnBuilder("import:chatgpt")
        self._source_id = (
            id_of(self._record.get("conversation_id")) or id_of(self._record.get("id")) or place
        )
        self._waiting: list[ToolCall] = []
        self._result: tuple[str, ToolResult] | None = None

    def items(self) -> Iterator[ImportItem]:
        if "mapping" not in self._record:
            yield Skipped(self._document.piece.where, "not_a_conversation")
            return
        begins = SessionBegins(
            source_id=self._source_id,
            title=title_of(self._record.get("title")),
            started_at=micros_of_seconds(self._record.get("create_time")),
        )
        yield from iter_session(begins, self._turns())

    def _turns(self) -> Iterator[ImportItem]:
        mapping = record_of(self._record.get("mapping"))
        line = pick_line(mapping, text_of(self._record.get("current_node")))
        if beside := _count_messages(list(mapping.values())) - _count_messages(line):
            yield Skipped(self._source_id, "branch", beside)
        for position, node in enumerate(line):
            message = record_of(node.get("message"))
            if message:
                source_id = id_of(message.get("id")) or id_of(node.get("id")) or str(position)
                yield from self._message(message, source_id)
        yield from self._give_result()
        yield from self._builder.finish()

    def _message(self, message: Record, source_id: str) -> Iterator[ImportItem]:
        role = text_of(record_of(message.get("author")).get("role"))
        if why := _hidden_word(message):
            yield from self._builder.skip(source_id, why)
            return
        text, skipped = _text_of_content(record_of(message.get("content")))
        for why in skipped:
            yield from self._builder.skip(source_id, why)
        if role == "tool":
            yield from self._tool(message, source_id, text)
        elif text.strip():
            yield from self._give_result()
            yield from self._spoken(message, source_id, text)
        elif not skipped:
            yield from self._builder.skip(source_id, "empty")

    def _spoken(self, message: Record, source_id: str, text: str) -> Iterator[ImportItem]:
        role = text_of(record_of(message.get("author")).get("role"))
        recipient = text_of(message.get("recipient")) or "all"
        at = micros_of_seconds(message.get("create_time"))
        if text_of(record_of(message.get("content")).get("content_type")) in _TOOL_OUTPUT:
            yield from self._builder.skip(source_id, "quote")
        elif role == "user":
            yield from self._add(UserMessage(text=text, occurred_at=at), source_id)
        elif role != "assistant":
            yield from self._builder.skip(source_id, "system" if role == "system" else "role")
        elif recipient == "all":
            yield from self._add(AssistantMessage(text=text, occurred_at=at), source_id)
            self._waiting.clear()
        else:
            call = ToolCall(
                call_id=source_id, name=recipient, arguments=arguments_text(text), occurred_at=at
            )
            self._waiting.append(call)
            yield from self._add(call, source_id)

    def _tool(self, message: Record, source_id: str, text: str) -> Iterator[ImportItem]:
        """A tool's message: the result of a waiting call, or more of the result before it."""
        if not self._waiting and self._result:
            first_id, result = self._result
            self._result = first_id, _joined(result, text)
            return
        yield from self._give_result()
        call = self._pick_call(text_of(record_of(message.get("author")).get("name")))
        content_type = text_of(record_of(message.get("content")).get("content_type"))
        self._result = (
            source_id,
            ToolResult(
                call_id=call.call_id if call else "",
                text=text,
                status="failed" if content_type == "system_error" else "completed",
                occurred_at=micros_of_seconds(message.get("create_time")),
            ),
        )

    def _pick_call(self, tool: str) -> ToolCall | None:
        """The oldest waiting call of `tool`: a call to `browser.search` is one of `browser`."""
        named = [c for c in self._waiting if c.name == tool or c.name.startswith(f"{tool}.")]
        chosen = named or self._waiting
        if not chosen:
            return None
        call = chosen[0]
        self._waiting.remove(call)
        return call

    def _give_result(self) -> Iterator[ImportItem]:
        if self._result:
            (source_id, result), self._result = self._result, None
            yield from self._add(result, source_id)

    def _add(self, event: Event, source_id: str) -> list[ImportItem]:
        return self._builder.add(event, source_id, is_repaired=self._document.is_repaired)


def _joined(result: ToolResult, text: str) -> ToolResult:
    return ToolResult(
        call_id=result.call_id,
        text=words([result.text, text]),
        status=result.status,
        occurred_at=result.occurred_at,
    )


def _count_messages(nodes: list[Record]) -> int:
    return sum(bool(record_of(record_of(node).get("message"))) for node in nodes)


def _hidden_word(message: Record) -> str:
    """Why the message is not part of what was said, or the empty text."""
    metadata = record_of(message.get("metadata"))
    content_type = text_of(record_of(message.get("content")).get("content_type"))
    if content_type in _SKIPPED_CONTENT:
        return _SKIPPED_CONTENT[content_type]
    weight = message.get("weight")
    is_weightless = isinstance(weight, int | float) and weight == 0
    if is_weightless or metadata.get("is_visually_hidden_from_conversation") is True:
        return "hidden"
    return ""


def _text_of_content(content: Record) -> tuple[str, list[str]]:
    """The words of a message and a skip word for each part without any."""
    content_type = text_of(content.get("content_type"))
    if key := _TEXT_KEYS.get(content_type):
        return text_of(content.get(key)), []
    if content_type not in ("text", "multimodal_text"):
        return "", ["unknown_content"]
    texts: list[str] = []
    skipped: list[str] = []
    for part in list_of(content.get("parts")):
        kind = text_of(record_of(part).get("content_type"))
        if isinstance(part, str):
            texts.append(part)
        elif kind == "audio_transcription":
            texts.append(text_of(part.get("text")))
        else:
            skipped.append(_SKIPPED_PARTS.get(kind, "unknown_part"))
    return words(texts), skipped
