"""What a reader of other people's files yields, and what an import reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from engrain.contracts.events import Event


class SessionBegins(msgspec.Struct, frozen=True, kw_only=True):
    """The turns that follow belong to this session of the source; it may be named again later."""

    source_id: str
    title: str | None = None
    started_at: int | None = None
    directory: str | None = None


class ImportedEvent(msgspec.Struct, frozen=True):
    """An event with its id in the source: the original one, or else its position."""

    source_id: str
    event: Event


class TurnRead(msgspec.Struct, frozen=True):
    """One agent turn: what a person said and everything up to the next thing that they said."""

    events: tuple[ImportedEvent, ...]


class Skipped(msgspec.Struct, frozen=True):
    """Something that was left out on purpose. `why` is a stable word, `where` never content."""

    where: str
    why: str
    count: int = 1


ImportItem = SessionBegins | TurnRead | Skipped


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file to read: its name for recognition and an opener that may be called again."""

    name: str
    size: int
    open: Callable[[], BinaryIO]


class FormatReader(Protocol):
    """A pure parser of one format."""

    name: str

    def recognises(self, name: str, head: bytes) -> bool:
        """True when a file with this name and these first 64 KiB is of this format."""
        ...

    def read(self, file: SourceFile) -> Iterator[ImportItem]:
        """Items in the file's order; one bad line is a `Skipped`, never a failure of the file."""
        ...


class ImportReport(msgspec.Struct, kw_only=True):
    """What an import did. Counts of what was new, what was known, and what was skipped by word."""

    files: int = 0
    sessions_new: int = 0
    sessions_known: int = 0
    turns_new: int = 0
    events_new: int = 0
    events_known: int = 0
    episodes_new: int = 0
    formats: dict[str, int] = msgspec.field(default_factory=dict)
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    failed: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """(file name, error code) of files that could not be read at all."""


Progress = Callable[[int, int], None]
"""Called with (bytes read, bytes in all)."""

ImportPath = Path | str
