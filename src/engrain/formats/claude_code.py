"""Claude Code transcripts: JSON lines, one content block of an API message a line.

A file is read twice: first for titles and the chain of lines, then for words. A line belongs to
the session that it names, so that a file may hold several; a sidechain is a session of its own,
`<session>/<agent>`, and what its model was asked there is a `System` event: nobody's words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import PurePosixPath
from typing import Any, Final

from engrain.contracts.events import (
    AssistantMessage,
    Event,
    System,
    ToolCall,
    ToolResult,
    UserMessage,
)
from engrain.contracts.imports import ImportItem, SessionBegins, Skipped, SourceFile, TurnRead
from engrain.formats.claude_code_chain import Chain, field, nobodys_words, read_chain
from engrain.formats.documents import (
    Document,
    Record,
    arguments_text,
    id_of,
    iter_documents,
    micros_of_iso,
    record_of,
    records_of,
    text_of,
    words,
)
from engrain.formats.json_stream import iter_lines
from engrain.formats.turns import TurnBuilder

_LINKED: Final = re.compile(rb'"(?:parentUuid|leafUuid)"\s*:', re.IGNORECASE)
_FIRST_TYPES: Final = re.compile(
    rb'"type"\s*:\s*"(?:queue-operation|file-history-snapshot|progress|custom-title)"'
)
_SESSION_KEY: Final = re.compile(rb'"session_?id"\s*:', re.IGNORECASE)

_SKIPPED_LINES: Final = {
    "progress": "progress",
    "queue-operation": "queue_operation",
    "file-history-snapshot": "file_snapshot",
    "summary": "title",
    "custom-title": "title",
    "ai-title": "title",
    "attachment": "attachment",
    "last-prompt": "state",
    "permission-mode": "state",
    "mode": "state",
    "agent-name": "state",
}
_FLAGS: Final = {
    "isCompactSummary": "compact_summary",
    "isMeta": "meta",
    "isApiErrorMessage": "api_error",
}
_SKIPPED_BLOCKS: Final = {
    "thinking": "thinking",
    "redacted_thinking": "thinking",
    "image": "picture",
    "document": "file",
}


class ClaudeCodeReader:
    """Reads the transcripts under `~/.claude/projects`."""

    name = "claude_code"
    passes = 2

    def recognises(self, name: str, head: bytes) -> bool:
        if not name.lower().endswith(".jsonl"):
            return False
        has_type = _FIRST_TYPES.search(head) and _SESSION_KEY.search(head)
        return bool(_LINKED.search(head) or has_type)

    def read(self, file: SourceFile) -> Iterator[ImportItem]:
        chain = read_chain(file)
        with closing(file.open()) as stream:
            yield from _Transcript(file.name, chain).items(
                iter_documents(iter_lines(stream), broken="broken_line")
            )


class _Line:
    """One line with what the format says about it."""

    def __init__(self, document: Document) -> None:
        self.record = document.record
        self.where = document.piece.where
        self.is_repaired = document.is_repaired
        self.type = text_of(self.record.get("type"))
        self.message = record_of(self.record.get("message"))
        self.id = id_of(field(self.record, "uuid")) or str(document.piece.number)
        self.at = micros_of_iso(self.record.get("timestamp"))
        self.session = id_of(field(self.record, "sessionId"))
        self.is_sidechain = field(self.record, "isSidechain") is True

    def blocks(self) -> list[Record]:
        content = self.message.get("content")
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return records_of(content)

    def block_id(self, index: int) -> str:
        return f"{self.id}/{index}" if index else self.id


class _Session:
    """A session of the file: its turns, and the blocks of the API message it is in."""

    def __init__(self, begins: SessionBegins, *, is_sidechain: bool) -> None:
        self.begins = begins
        self.is_sidechain = is_sidechain
        self.builder = TurnBuilder("import:claude_code")
        self._message_id = ""
        self._blocks: set[int] = set()

    def is_repeat(self, message_id: str, block: Event) -> bool:
        """True when the same API message has brought this very block on an earlier line."""
        if not message_id:
            return False
        if message_id != self._message_id:
            self._message_id, self._blocks = message_id, set()
        mark = hash((type(block), block.text, getattr(block, "call_id", None)))
        if mark in self._blocks:
            return True
        self._blocks.add(mark)
        return False


class _Transcript:
    """One file on its way into the turns of its sessions."""

    def __init__(self, name: str, chain: Chain) -> None:
        self._chain = chain
        self._sessions: dict[str, _Session] = {}
        self._last_session = PurePosixPath(name).stem
        self._named = ""
        self._skips: Counter[str] = Counter()

    def items(self, documents: Iterator[Document | Skipped]) -> Iterator[ImportItem]:
        for document in documents:
            if isinstance(document, Skipped):
                yield document
            else:
                yield from self._line(_Line(document))
        for source_id, session in self._sessions.items():
            yield from self._in_session(source_id, session.builder.finish())
        for why, count in sorted(self._skips.items()):
            yield Skipped("lines", why, count)

    def _line(self, line: _Line) -> Iterator[ImportItem]:
        if line.session:
            self._last_session = line.session
        if why := self._skip_word(line):
            self._skips[why] += 1
            return
        source_id, session = self._session_of(line)
        for event, block_id, group in self._events(line, session):
            items = session.builder.add(
                event,
                block_id,
                group=group,
                is_repaired=line.is_repaired,
                starts_turn=_starts_turn(event, session),
            )
            yield from self._in_session(source_id, items)

    def _in_session(self, source_id: str, items: list[ImportItem]) -> Iterator[ImportItem]:
        """The items, after the name of their session where another was named last."""
        for item in items:
            if isinstance(item, TurnRead) and self._named != source_id:
                self._named = source_id
                yield self._sessions[source_id].begins
            yield item

    def _session_of(self, line: _Line) -> tuple[str, _Session]:
        source_id = self._last_session
        if line.is_sidechain:
            agent = id_of(field(line.record, "agentId")) or self._chain.root_of(line.id)
            source_id = f"{source_id}/{agent}"
        if source_id not in self._sessions:
            begins = SessionBegins(
                source_id=source_id,
                title=None if line.is_sidechain else self._chain.title_of(self._last_session),
                started_at=line.at,
                directory=text_of(line.record.get("cwd")) or None,
            )
            self._sessions[source_id] = _Session(begins, is_sidechain=line.is_sidechain)
        return source_id, self._sessions[source_id]

    def _skip_word(self, line: _Line) -> str:
        """Why nothing of the line was said, or the empty text."""
        if line.type == "system":
            is_boundary = line.record.get("subtype") == "compact_boundary"
            return "compact_boundary" if is_boundary else "system"
        if line.type not in ("user", "assistant"):
            return _SKIPPED_LINES.get(line.type, "unknown_line")
        if self._chain.is_abandoned(line.record):
            return "branch"
        return next((why for name, why in _FLAGS.items() if field(line.record, name) is True), "")

    def _events(self, line: _Line, session: _Session) -> Iterator[tuple[Event, str, str | None]]:
        if line.type == "user":
            for event, block_id in self._user_events(line, session):
                yield event, block_id, None
            return
        message_id = id_of(line.message.get("id"))
        for index, block in enumerate(line.blocks()):
            answered = _assistant_event(block, line, line.block_id(index))
            if answered is None:
                self._skips[_block_word(block)] += 1
            elif session.is_repeat(message_id, answered):
                self._skips["repeated"] += 1
            else:
                yield answered, line.block_id(index), message_id or None

    def _user_events(self, line: _Line, session: _Session) -> Iterator[tuple[Event, str]]:
        """Results first, then the words of the line as one event."""
        texts: list[str] = []
        for index, block in enumerate(line.blocks()):
            kind = block.get("type")
            if kind == "tool_result":
                self._skip_unread(block)
                yield _result(block, line), line.block_id(index)
            elif kind != "text":
                self._skips[_block_word(block)] += 1
            elif why := nobodys_words(text_of(block.get("text"))):
                self._skips[why] += 1
            else:
                texts.append(text_of(block.get("text")))
        if text := words(texts):
            said = System if session.is_sidechain else UserMessage
            yield said(text=text, occurred_at=line.at), line.id

    def _skip_unread(self, block: Record) -> None:
        for inner in records_of(block.get("content")):
            if inner.get("type") != "text":
                self._skips[_block_word(inner)] += 1


def _starts_turn(event: Event, session: _Session) -> bool:
    return isinstance(event, System if session.is_sidechain else UserMessage)


def _block_word(block: Record) -> str:
    if block.get("type") == "text":
        return "empty"
    return _SKIPPED_BLOCKS.get(text_of(block.get("type")), "unknown_part")


def _assistant_event(block: Record, line: _Line, block_id: str) -> Event | None:
    kind = block.get("type")
    if kind == "text" and text_of(block.get("text")).strip():
        return AssistantMessage(text=text_of(block.get("text")), occurred_at=line.at)
    if kind in ("tool_use", "server_tool_use"):
        return ToolCall(
            call_id=id_of(block.get("id")) or block_id,
            name=text_of(block.get("name")),
            arguments=arguments_text(block.get("input") or {}),
            occurred_at=line.at,
        )
    return None


def _result(block: Record, line: _Line) -> ToolResult:
    text = _result_text(block.get("content"))
    if not text.strip():
        text = _told_beside(field(line.record, "toolUseResult"))
    return ToolResult(
        call_id=id_of(block.get("tool_use_id")),
        text=text,
        status="failed" if block.get("is_error") is True else "completed",
        occurred_at=line.at,
    )


def _result_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return words(text_of(part.get("text")) for part in records_of(content))


def _told_beside(result: Any) -> str:
    """The words of `toolUseResult`, which is an object or a text."""
    return result if isinstance(result, str) else text_of(record_of(result).get("stdout"))
