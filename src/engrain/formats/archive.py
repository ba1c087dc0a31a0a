"""Engrain's own archive: JSON lines that hold sessions and their events without loss.

Owns the lines in both directions; docs/reference/archive.md describes them. What an importer may
not take over (summaries of another chain, erased events) is read here and counted there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, Final

import msgspec

from engrain.contracts.errors import EngrainError, UnknownFormat
from engrain.contracts.events import Erased, Event, StoredEvent, Summary
from engrain.contracts.imports import ImportItem, SessionBegins, Skipped, SourceFile
from engrain.contracts.scope import Origin
from engrain.contracts.sessions import Session
from engrain.formats.documents import Document, Record, iter_documents, record_of, title_of
from engrain.formats.json_stream import iter_lines
from engrain.formats.turns import TurnBuilder

VERSION: Final = 1

_HEAD: Final = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"engrain"\s*:\s*"archive"')
_EVENT_KEYS: Final = frozenset({"event", "sequence", "turn", "recorded_at"})


class ArchiveSession(msgspec.Struct, frozen=True):
    """A session as the archive tells it; a lease is never part of an archive."""

    session: Session


class ArchiveEnd(msgspec.Struct, frozen=True):
    """The last line: how many sessions and events an archive that is whole holds."""

    sessions: int
    events: int


ArchiveItem = ArchiveSession | StoredEvent | Skipped


def iter_archive_lines(
    sessions: Iterable[tuple[Session, Iterable[StoredEvent]]],
) -> Iterator[bytes]:
    """The lines of an archive, each with its end; nothing is held back or kept in memory."""
    yield _line({"engrain": "archive", "version": VERSION})
    session_count = event_count = 0
    for session, events in sessions:
        yield session_line(session)
        session_count += 1
        for stored in events:
            yield event_line(stored)
            event_count += 1
    yield _line({"end": ArchiveEnd(session_count, event_count)})


def session_line(session: Session) -> bytes:
    """The line of one session; its events follow on lines of their own."""
    return _line({"session": msgspec.structs.replace(session, leased_until=None)})


def event_line(stored: StoredEvent) -> bytes:
    """The line of one event: its header, and the event with its kind and every field it has."""
    return _line(
        {
            "sequence": stored.sequence,
            "turn": stored.turn,
            "recorded_at": stored.recorded_at,
            "event": stored.event,
        }
    )


def iter_archive(file: SourceFile) -> Iterator[ArchiveItem]:
    """Sessions, each followed by its events, equal to those that were written.

    Raises `UnknownFormat` when the first line is no header of a version that this reader knows.
    A broken line is counted, an archive without its last line is `torn`.
    """
    with closing(file.open()) as stream:
        documents = iter_documents(iter_lines(stream), broken="broken_line")
        _check_header(next(documents, None))
        yield from _read_lines(documents)


class ArchiveReader:
    """Reads an archive as an import: events keep their origin, ids and times."""

    name = "archive"
    passes = 1

    def recognises(self, name: str, head: bytes) -> bool:
        return bool(_HEAD.match(head))

    def read(self, file: SourceFile) -> Iterator[ImportItem]:
        builder = TurnBuilder()
        turn = 0
        for item in iter_archive(file):
            if isinstance(item, Skipped):
                yield item
            elif isinstance(item, ArchiveSession):
                yield from builder.finish()
                builder, turn = TurnBuilder(), 0
                yield _begin(item.session)
            elif isinstance(item.event, Erased | Summary):
                why = "erased" if isinstance(item.event, Erased) else "summary"
                yield from builder.skip(str(item.sequence), why)
            else:
                event = _dated(item.event, item.recorded_at)
                source_id = event.source_id or str(item.sequence)
                yield from builder.add(event, source_id, starts_turn=item.turn != turn)
                turn = item.turn
        yield from builder.finish()


def _dated(event: Event, recorded_at: int) -> Event:
    """An event that was recorded when it was said keeps that day; the import's says nothing."""
    if event.occurred_at is not None or event.origin.startswith("import:"):
        return event
    return msgspec.structs.replace(event, occurred_at=recorded_at)


def _begin(session: Session) -> SessionBegins:
    workspace = session.workspace
    return SessionBegins(
        source_id=str(session.id),
        title=title_of(session.title),
        started_at=session.created_at,
        directory=workspace.name if workspace.is_directory else None,
    )


def _check_header(first: Document | Skipped | None) -> None:
    header = first.record if isinstance(first, Document) else {}
    if header.get("engrain") != "archive":
        raise UnknownFormat("the file does not begin with the header of an Engrain archive")
    if header.get("version") != VERSION:
        raise UnknownFormat(f"this Engrain reads version {VERSION} of the archive, not the file's")


def _read_lines(documents: Iterator[Document | Skipped]) -> Iterator[ArchiveItem]:
    counts = {ArchiveSession: 0, StoredEvent: 0}
    is_ended = False
    place = _Place()
    for document in documents:
        item = document if isinstance(document, Skipped) else _read_line(document)
        if isinstance(item, ArchiveEnd):
            is_ended = item == ArchiveEnd(*counts.values())
        elif isinstance(item, StoredEvent) and not place.holds(item):
            yield Skipped(f"event {item.sequence}", "no_session")
        else:
            place.pass_by(item)
            if not isinstance(item, Skipped):
                counts[type(item)] += 1
            yield item
    if not is_ended:
        yield Skipped("end", "torn")


class _Place:
    """Whose events come next: those of the session line above, unless another one was broken.

    Sequences rise in a session, and it has as many as its line says. An event that goes back, or
    after a broken line does not rise or is one too many, is of a session that was lost: nobody
    else's.
    """

    def __init__(self) -> None:
        self._session: Session | None = None
        self._last: int | None = None
        self._has_gap = False

    def holds(self, stored: StoredEvent) -> bool:
        """False for an event whose session is not known, and for all that follow it."""
        if self._session is None:
            return False
        last = stored.sequence if self._last is None else self._last
        is_beyond = stored.sequence > self._session.event_count or stored.sequence == self._last
        if stored.sequence < last or (self._has_gap and is_beyond):
            self._session = None
        return self._session is not None

    def pass_by(self, item: ArchiveItem) -> None:
        if isinstance(item, ArchiveSession):
            self._session, self._last, self._has_gap = item.session, None, False
        elif isinstance(item, StoredEvent):
            self._last = item.sequence
        else:
            self._has_gap = True


def _read_line(document: Document) -> ArchiveItem | ArchiveEnd:
    record = document.record
    try:
        if "session" in record:
            return ArchiveSession(msgspec.convert(record["session"], Session))
        if "end" in record:
            return msgspec.convert(record["end"], ArchiveEnd)
        if record.keys() >= _EVENT_KEYS:
            return _read_event(record, is_repaired=document.is_repaired)
    except (msgspec.ValidationError, EngrainError):
        return Skipped(document.piece.where, "invalid_value")
    return Skipped(document.piece.where, "unknown_line")


def _read_event(record: Record, *, is_repaired: bool) -> StoredEvent:
    body: Record = record_of(record["event"])
    kind: Any = Erased if body.get("kind") == "erased" else Event
    event = msgspec.convert(body, kind)
    Origin(event.origin)
    if is_repaired:
        event = msgspec.structs.replace(event, repaired=True)
    return StoredEvent(
        sequence=msgspec.convert(record["sequence"], int),
        turn=msgspec.convert(record["turn"], int),
        recorded_at=msgspec.convert(record["recorded_at"], int),
        event=event,
    )


def _line(record: Record) -> bytes:
    return msgspec.json.encode(record) + b"\n"
