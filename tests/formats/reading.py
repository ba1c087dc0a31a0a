"""How the format tests read fixtures, and how they write what a reader gave in one line each."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from engrain.contracts.events import AssistantMessage, Event, ToolCall, ToolResult, UserMessage
from engrain.contracts.imports import ImportItem, SessionBegins, Skipped, SourceFile, TurnRead
from engrain.formats.registry import reader_named

FIXTURES = Path(__file__).parent / "fixtures"


def source(data: bytes, name: str = "file.json") -> SourceFile:
    """A file that is held in memory."""

    def opener() -> BinaryIO:
        return io.BytesIO(data)

    return SourceFile(name=name, size=len(data), open=opener)


def fixture(name: str) -> SourceFile:
    return source((FIXTURES / name).read_bytes(), name)


def read(format_name: str, file: SourceFile) -> list[ImportItem]:
    return list(reader_named(format_name).read(file))


def told(items: Iterable[ImportItem]) -> list[str]:
    """Sessions and events, a line each; a turn begins with `--`."""
    return [line for item in items for line in _lines(item)]


def _lines(item: ImportItem) -> Iterator[str]:
    if isinstance(item, SessionBegins):
        yield f"session {item.source_id} | {item.title} | {item.started_at}"
    elif isinstance(item, TurnRead):
        yield "--"
        for imported in item.events:
            assert imported.source_id == imported.event.source_id
            yield f"{imported.source_id} {_words(imported.event)}"


def _words(event: Event) -> str:
    match event:
        case UserMessage(text=text, speaker=None):
            return f"user: {text}"
        case UserMessage(text=text, speaker=speaker):
            return f"{speaker}: {text}"
        case AssistantMessage(text=text):
            return f"assistant: {text}"
        case ToolCall(call_id=call_id, name=name, arguments=arguments):
            return f"call {call_id} {name} {arguments}"
        case ToolResult(call_id=call_id, status=status, text=text):
            return f"result {call_id} {status}: {text}"
        case _:
            return f"{type(event).__name__}: {event.text}"


def skips(items: Iterable[ImportItem]) -> dict[str, int]:
    """How often each skip word was counted."""
    counts: Counter[str] = Counter()
    for item in items:
        if isinstance(item, Skipped):
            counts[item.why] += item.count
    return dict(sorted(counts.items()))


def events(items: Iterable[ImportItem]) -> dict[str, Event]:
    """Every event under its id in the source; ids are told apart by session where they repeat."""
    found: dict[str, Event] = {}
    session = ""
    for item in items:
        if isinstance(item, SessionBegins):
            session = item.source_id
        elif isinstance(item, TurnRead):
            for imported in item.events:
                key = f"{session}:{imported.source_id}"
                assert key not in found
                found[key] = imported.event
    return found
