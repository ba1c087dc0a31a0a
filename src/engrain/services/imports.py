"""Imports: files become sessions, each turn exactly once, however often it is interrupted.

What a source calls a session is one session here, found again by its mark; an event is known by
the mark of its original id. Appends go turn by turn under a short lease, so a killed import can be
run again within seconds and goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import (
    EngrainError,
    InvalidValue,
    LimitExceeded,
    SessionBusy,
    StaleLease,
    Uncertain,
    UnknownFormat,
)
from engrain.contracts.ids import OperationId
from engrain.contracts.imports import (
    REFUSED,
    FormatReader,
    ImportedEvent,
    ImportItem,
    ImportReport,
    Progress,
    SessionBegins,
    Skipped,
    SkippedPlace,
    SourceFile,
    TurnRead,
    is_damage,
)
from engrain.contracts.leases import LeaseStore, SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.sessions import Session, SessionStore
from engrain.contracts.text import cut_text, repair_text
from engrain.contracts.transcript import SourceMarks, TranscriptStore
from engrain.contracts.workspace import DEFAULT_WORKSPACE, Workspace
from engrain.services.enrichment import Enrichment
from engrain.services.progress import Meter
from engrain.services.sources import iter_sources

T = TypeVar("T")
HEAD_BYTES = 64 * 1024
BUSY_WAIT_S = 2 * limits.import_lease_ttl_us / limits.SECOND_US
TRIES_UNCERTAIN = 3


class Imports:
    """`memory.imports`: brings other people's files in."""

    def __init__(
        self,
        load_readers: Callable[[], Sequence[FormatReader]],
        sessions: SessionStore,
        leases: LeaseStore,
        transcript: TranscriptStore,
        enrichment: Enrichment,
    ) -> None:
        self._load_readers = load_readers
        self._sessions = sessions
        self._leases = leases
        self._transcript = transcript
        self._enrichment = enrichment

    @property
    def formats(self) -> tuple[str, ...]:
        """Names of the formats that can be read."""
        return tuple(reader.name for reader in self._load_readers())

    def run(
        self,
        scope: Scope,
        path: Path,
        *,
        format: str = "auto",
        workspace: Workspace = DEFAULT_WORKSPACE,
        progress: Progress | None = None,
        report: ImportReport | None = None,
    ) -> ImportReport:
        """Imports a file, a folder or a zip, and extracts episodes of what is new.

        One bad line or file never fails the rest: it is counted in the report. The same path again
        changes nothing; a grown one adds what is new. `report` is filled as the work goes on, so
        that a caller who is interrupted can say what was done.
        """
        report = report if report is not None else ImportReport()
        sources = list(iter_sources(path))
        meter = Meter(sum(source.size for source in sources), progress)
        for source in sources:
            self._import_file(scope, source, format, workspace, report, meter)
        if report.skipped and not report.files:
            raise UnknownFormat(f"no reader recognises anything in {path}")
        return report

    def _import_file(
        self,
        scope: Scope,
        source: SourceFile,
        format: str,
        workspace: Workspace,
        report: ImportReport,
        meter: Meter,
    ) -> None:
        try:
            reader = self._reader_for(source, format)
        except UnknownFormat:
            _count(report.skipped, "unknown_file")
            meter.finish(source)
            return
        report.files += 1
        _count(report.formats, reader.name)
        run = _FileImport(
            scope, reader.name, workspace, self._sessions, self._leases, self._transcript, report
        )
        run.file = source.name
        try:
            for item in reader.read(meter.watch(source)):
                run.take(item)
        except (EngrainError, OSError) as error:
            code = error.code if isinstance(error, EngrainError) else "unreadable_file"
            report.failed.append((source.name, code))
        finally:
            run.finish()
        for session in run.seen.values():
            report.episodes_new += self._enrichment.extract(scope, session.id).written
        meter.finish(source)

    def _reader_for(self, source: SourceFile, format: str) -> FormatReader:
        if format != "auto":
            for reader in self._load_readers():
                if reader.name == format:
                    return reader
            raise InvalidValue("format", f"must be auto or one of {', '.join(self.formats)}")
        with source.open() as stream:
            head = stream.read(HEAD_BYTES)
        for reader in self._load_readers():
            if reader.recognises(source.name, head):
                return reader
        raise UnknownFormat(f"no reader recognises {source.name}")


class _FileImport:
    """One file on its way in: which session is being filled, and under which lease."""

    def __init__(
        self,
        scope: Scope,
        format: str,
        workspace: Workspace,
        sessions: SessionStore,
        leases: LeaseStore,
        transcript: TranscriptStore,
        report: ImportReport,
    ) -> None:
        self._scope = scope
        self._format = format
        self._workspace = workspace
        self._sessions = sessions
        self._leases = leases
        self._transcript = transcript
        self._report = report
        self._begins: SessionBegins | None = None
        self._session: Session | None = None
        self._marks: SourceMarks | None = None
        self._lease: SessionLease | None = None
        self.file = ""
        """Its name, for what the report says of it."""
        self.seen: dict[str, Session] = {}
        """Sessions of this file by their original id."""

    def take(self, item: ImportItem) -> None:
        if isinstance(item, Skipped):
            self._skip(item.where, item.why, item.count)
        elif isinstance(item, SessionBegins):
            self._begin(item)
        else:
            self._take_turn(item)

    def _skip(self, where: str, why: str, count: int) -> None:
        _count(self._report.skipped, why, count)
        if is_damage(why) and len(self._report.places) < limits.import_places_max:
            self._report.places.append(SkippedPlace(file=self.file, where=where, why=why))

    def _begin(self, begins: SessionBegins) -> None:
        if self._begins is not None and self._begins.source_id == begins.source_id:
            return
        self.finish()
        self._begins = begins
        self._marks = None
        self._session = self.seen.get(begins.source_id)
        if self._session is None:
            source = (self._format, begins.source_id)
            self._session = self._sessions.find_source(self._scope, source)
            if self._session is not None:
                self._report.sessions_known += 1
                self.seen[begins.source_id] = self._session

    def _take_turn(self, turn: TurnRead) -> None:
        session = self._session or self._start()
        if self._marks is None:
            self._marks = self._transcript.known_sources(self._scope, session.id)
        new = [one for one in turn.events if one.source_id not in self._marks]
        self._report.events_known += len(turn.events) - len(new)
        if not new:
            return
        try:
            self._append(session, new)
        except (InvalidValue, LimitExceeded) as error:
            self._skip(new[0].source_id, f"{REFUSED}{error.code}", len(new))
            return
        for one in new:
            self._marks.add(one.source_id)
        self._report.events_repaired += sum(one.event.repaired for one in new)
        self._report.turns_new += 1
        self._report.events_new += len(new)

    def _start(self) -> Session:
        assert self._begins is not None, "a reader names a session before its turns"
        session = self._sessions.start(
            self._scope,
            self._workspace,
            title=_title(self._begins.title),
            source=(self._format, self._begins.source_id),
        )
        self._report.sessions_new += 1
        self._session = self.seen[self._begins.source_id] = session
        return session

    def _append(self, session: Session, new: Sequence[ImportedEvent]) -> None:
        events = [msgspec.structs.replace(one.event, source_id=one.source_id) for one in new]
        if self._lease is None:
            self._lease = self._claim(session)
        operation_id: OperationId | None = None
        for attempt in range(1, TRIES_UNCERTAIN + 1):
            try:
                self._transcript.append_turn(self._lease, events, operation_id=operation_id)
                return
            except StaleLease:
                self._lease = self._claim(session)
            except Uncertain as lost:
                operation_id = OperationId(lost.operation_id) if lost.operation_id else None
                if attempt == TRIES_UNCERTAIN:
                    raise

    def _claim(self, session: Session) -> SessionLease:
        lease = _patiently(
            lambda: self._leases.claim(self._scope, session.id, ttl_us=limits.import_lease_ttl_us)
        )
        for _ in self._transcript.replay(lease, is_verified=False):
            pass
        return lease

    def finish(self) -> None:
        """Frees the session being filled."""
        if self._lease is not None:
            with suppress(EngrainError):  # expiry frees what a release could not
                self._leases.release(self._lease)
            self._lease = None


def _title(title: str | None) -> str | None:
    """A title as it may be stored, None when nothing of it can."""
    clean = cut_text(repair_text(title or "")[0], limits.title_bytes_max).strip()
    return clean or None


def _count(words: dict[str, int], word: str, more: int = 1) -> None:
    words[word] = words.get(word, 0) + more


def _patiently(attempt: Callable[[], T]) -> T:
    """Tries again while another short lease is live; a killed import's lease ends by itself."""
    give_up_at = time.monotonic() + BUSY_WAIT_S
    while True:
        try:
            return attempt()
        except SessionBusy as busy:
            wait_s = min(busy.retry_after_s or 0.1, 0.5)
            if time.monotonic() + (busy.retry_after_s or 0.0) > give_up_at:
                raise
            time.sleep(wait_s)
