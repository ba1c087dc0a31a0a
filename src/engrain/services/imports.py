"""Imports: files become sessions, each turn exactly once, however often it is interrupted.

Owns which files are read, by which reader, and what the report says of them. How turns enter the
record is `intake`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import (
    EngrainError,
    InvalidValue,
    LimitExceeded,
    SessionBusy,
    UnknownFormat,
    UnsafeFile,
    WorkspaceMismatch,
)
from engrain.contracts.ids import SessionId
from engrain.contracts.imports import (
    NO_CONVERSATION,
    REFUSED,
    UNREADABLE_FOLDER,
    FormatReader,
    ImportItem,
    ImportPath,
    ImportReport,
    Progress,
    SessionBegins,
    Skipped,
    SkippedPlace,
    SourceFile,
    TurnRead,
    is_damage,
)
from engrain.contracts.leases import LeaseStore
from engrain.contracts.scope import Scope
from engrain.contracts.sessions import SessionStore
from engrain.contracts.text import repair_text, require_text
from engrain.contracts.transcript import TranscriptStore
from engrain.contracts.workspace import DEFAULT_WORKSPACE, Workspace, named_workspace
from engrain.services.enrichment import Enrichment
from engrain.services.intake import ImportStores, Intake, surely
from engrain.services.progress import Meter
from engrain.services.sources import Sources

AUTO: Final = "auto"
_HEAD_BYTES: Final = 64 * limits.KIB


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
        self._stores = ImportStores(sessions=sessions, leases=leases, transcript=transcript)
        self._enrichment = enrichment

    @property
    def formats(self) -> tuple[str, ...]:
        """Names of the formats that can be read."""
        return tuple(reader.name for reader in self._load_readers())

    def run(
        self,
        scope: Scope,
        path: ImportPath,
        *,
        format: str = AUTO,
        workspace: Workspace | str = DEFAULT_WORKSPACE,
        progress: Progress | None = None,
        report: ImportReport | None = None,
    ) -> ImportReport:
        """Imports a file, a folder or a zip, and extracts episodes of what is new.

        New sessions belong to `workspace`: a name, or what `memory.sessions.workspace` gave.
        One bad line, file or session never fails the rest: it is counted in the report. The same
        path again changes nothing; a grown one adds what is new. `report` is filled as the work
        goes on, so that a caller who is interrupted can say what was done. `UnknownFormat` and
        `UnsafeFile` say that nothing at the path could be read. What the store raises ends the
        import; run again, it goes on from there (INV-16).
        """
        if progress is not None and not callable(progress):
            raise InvalidValue("progress", "must be callable")
        report = report if report is not None else ImportReport()
        path, bound = _path_of(path), _workspace_of(workspace)
        readers = self._readers_of(format)
        with Sources(path) as found:
            sources = list(found)
            meter = Meter(sum(s.size for s in sources if isinstance(s, SourceFile)), progress)
            for source in sources:
                if isinstance(source, Skipped):
                    _File(source.where, report).leave_out(source)
                else:
                    self._import_file(_Job(scope, bound, report, meter), source, readers)
        if not report.files:
            _check_any(path, report)
        return report

    def _readers_of(self, format: str) -> Sequence[FormatReader]:
        readers = [r for r in self._load_readers() if format in (AUTO, r.name)]
        if not readers:
            raise InvalidValue("format", f"must be auto or one of {', '.join(self.formats)}")
        return readers

    def _import_file(self, job: _Job, source: SourceFile, readers: Sequence[FormatReader]) -> None:
        file = _File(source.name, job.report)
        reader = file.recognise(source, readers)
        if reader is not None:
            self._fill(job, file, reader, job.meter.watch(source, reader.passes))
        job.meter.finish(source)

    def _fill(self, job: _Job, file: _File, reader: FormatReader, source: SourceFile) -> None:
        place = (job.scope, job.workspace, reader.name)
        intake = Intake(place, self._stores, job.report, on_wait=job.meter.wait)
        try:
            for item in file.items(reader, source):
                file.take(item, intake)
        finally:
            intake.close()
        file.end()
        for done, session_id in enumerate(intake.sessions):
            job.meter.index(done, len(intake.sessions))
            job.report.episodes_new += self._extract(job.scope, session_id)

    def _extract(self, scope: Scope, session_id: SessionId) -> int:
        return surely(lambda _: self._enrichment.extract(scope, session_id)).written


class _Job(msgspec.Struct, frozen=True):
    """What every file of one import shares."""

    scope: Scope
    workspace: Workspace
    report: ImportReport
    meter: Meter


class _File:
    """One file on its way in, and what the report says of it."""

    def __init__(self, name: str, report: ImportReport) -> None:
        self._name = name
        self._report = report
        self._begins = SessionBegins(source_id="")
        self._closed: dict[str, str] = {}  # session of the source → why it takes no more
        self._words: set[str] = set()
        self._has_failed = False

    def recognise(self, source: SourceFile, readers: Sequence[FormatReader]) -> FormatReader | None:
        """The file's reader; counted when there is none, or when its bytes cannot be had."""
        try:
            reader = _reader_of(source, readers)
        except (EngrainError, OSError) as error:
            self._report.files += 1
            self._fail(_code_of(error))
            return None
        if reader is None:
            _count(self._report.skipped, "unknown_file")
            return None
        self._report.files += 1
        _count(self._report.formats, reader.name)
        return reader

    def items(self, reader: FormatReader, source: SourceFile) -> Iterator[ImportItem]:
        """The reader's items, up to where the bytes cannot be had any more."""
        try:
            yield from reader.read(source)
        except (EngrainError, OSError) as error:
            self._fail(_code_of(error))

    def take(self, item: ImportItem, intake: Intake) -> None:
        """Takes a turn in, or notes what else the reader says."""
        if isinstance(item, Skipped):
            self.skip(item)
        elif isinstance(item, SessionBegins):
            self._begins = item
        elif code := self._closed.get(self._begins.source_id):
            self._refuse(item, code)
        else:
            self._take_turn(item, intake)

    def end(self) -> None:
        """A file of which no element is a conversation was of another format after all."""
        if self._words == {NO_CONVERSATION} and not self._begins.source_id:
            self._fail(UnknownFormat.code)

    def leave_out(self, skipped: Skipped) -> None:
        """Counts what is no file; a folder that cannot be listed has failed."""
        if skipped.why == UNREADABLE_FOLDER:
            self._fail(UNREADABLE_FOLDER)
        else:
            self.skip(skipped)

    def skip(self, skipped: Skipped) -> None:
        """Counts what was left out; damage is reported with its place."""
        self._words.add(skipped.why)
        _count(self._report.skipped, skipped.why, skipped.count)
        if is_damage(skipped.why) and len(self._report.places) < limits.import_places_max:
            place = SkippedPlace(file=self._name, where=skipped.where, why=skipped.why)
            self._report.places.append(place)

    def _take_turn(self, turn: TurnRead, intake: Intake) -> None:
        try:
            intake.add(self._begins, turn)
        except (SessionBusy, WorkspaceMismatch) as error:
            # What comes later in the session must not come before this.
            self._closed[self._begins.source_id] = error.code
            self._refuse(turn, error.code)
        except (InvalidValue, LimitExceeded) as error:
            self._refuse(turn, error.code)

    def _refuse(self, turn: TurnRead, code: str) -> None:
        self.skip(Skipped(turn.events[0].source_id, f"{REFUSED}{code}", len(turn.events)))

    def _fail(self, code: str) -> None:
        if not self._has_failed:
            self._report.failed.append((self._name, code))
        self._has_failed = True


def _path_of(path: ImportPath) -> Path:
    if not isinstance(path, Path | str):
        raise InvalidValue("path", "must be a path")
    if isinstance(path, str) and not path:  # a variable that was never set is no folder
        raise InvalidValue("path", "must not be empty")
    return Path(path)


def _workspace_of(workspace: Workspace | str) -> Workspace:
    if isinstance(workspace, Workspace):
        return workspace
    return named_workspace(require_text(workspace, "workspace"))


def _reader_of(source: SourceFile, readers: Sequence[FormatReader]) -> FormatReader | None:
    """The reader that was asked for, or the one that recognises the file."""
    if len(readers) == 1:
        return readers[0]
    with source.open() as stream:
        head = stream.read(_HEAD_BYTES)
    return next((reader for reader in readers if reader.recognises(source.name, head)), None)


def _code_of(error: EngrainError | OSError) -> str:
    return error.code if isinstance(error, EngrainError) else "unreadable_file"


def _check_any(path: Path, report: ImportReport) -> None:
    """Raises when there was something, and nothing of it could be read."""
    if report.failed:
        raise UnsafeFile(_label(path), f"{report.failed[0][0]} in it cannot be read")
    if report.skipped:
        raise UnknownFormat(f"no reader recognises anything in {_label(path)}")


def _label(path: Path) -> str:
    return repair_text(str(path))[0]


def _count(words: dict[str, int], word: str, more: int = 1) -> None:
    words[word] = words.get(word, 0) + more
