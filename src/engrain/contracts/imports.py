"""What a reader of other people's files yields, and what an import reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal, Protocol

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
    passes: int
    """How often `read` goes through the file."""

    def recognises(self, name: str, head: bytes) -> bool:
        """True when a file with this name and these first 64 KiB is of this format."""
        ...

    def read(self, file: SourceFile) -> Iterator[ImportItem]:
        """Items in the file's order; one bad line is a `Skipped`, never a failure of the file."""
        ...


DAMAGE: Final = frozenset(
    {
        "broken_line",
        "cut_text",
        "invalid_json",
        "invalid_value",
        "limit_exceeded",
        "no_call_id",
        "no_session",
        "not_an_object",
        "orphan_result",
        "too_large",
        "torn",
        "trailing",
    }
)
"""Words for what was lost, though the source meant to say it; every other word is by design."""
UNREADABLE_FOLDER: Final = "unreadable_folder"
"""The word for a folder that cannot be listed; it is among what failed."""
NO_CONVERSATION: Final = "not_a_conversation"
"""The word for an element without what makes one. Where a file has nothing else, it failed."""
REFUSED: Final = "refused_"
"""Begins the words for turns that the record would not take."""


class SkippedPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where something was lost: the file, the position or id in it, and the word for why."""

    file: str
    where: str
    why: str


class ImportReport(msgspec.Struct, kw_only=True):
    """What an import did. Counts of what was new, what was known, and what was skipped by word."""

    files: int = 0
    sessions_new: int = 0
    sessions_known: int = 0
    turns_new: int = 0
    events_new: int = 0
    events_known: int = 0
    events_repaired: int = 0
    """Of the new ones, those in which the text rule had to replace code points."""
    episodes_new: int = 0
    formats: dict[str, int] = msgspec.field(default_factory=dict)
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    places: list[SkippedPlace] = msgspec.field(default_factory=list)
    """Where damage was met, the first `import_places_max` of it."""
    failed: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """(name, error code) of files that could not be read to their end, and of closed folders."""

    @property
    def is_empty_handed(self) -> bool:
        """True when no file could be read."""
        return self.files <= sum(code != UNREADABLE_FOLDER for _, code in self.failed)

    @property
    def is_whole(self) -> bool:
        """True when nothing was lost that the source meant to say."""
        return not self.failed and not any(map(is_damage, self.skipped))


def is_damage(why: str) -> bool:
    """Whether the word of a skip says that something was lost."""
    return why in DAMAGE or why.startswith(REFUSED)


Doing = Literal["reading", "indexing", "waiting", "checking"]
"""What an import does: reads a file, indexes what was in it, or waits for another import of it."""

Progress = Callable[[int, int, Doing], None]
"""Called with how much of the work is done, of how much, in bytes of the files, and what is done.

Indexing a file counts as reading it once more.
"""

ImportPath = Path | str
