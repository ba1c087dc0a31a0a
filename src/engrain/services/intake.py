"""Where imported turns go: sessions being filled, each event exactly once (INV-16).

What a source calls a session is one session here, found again by its mark; an event is known by
the mark of its original id. What is new is decided under the lease, so that two imports of one
file add each turn once between them. A killed import's lease ends within seconds, and the next
run goes on from the marks of what is durable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import EngrainError, SessionBusy, StaleLease, Uncertain
from engrain.contracts.ids import OperationId, SessionId
from engrain.contracts.imports import ImportedEvent, ImportReport, SessionBegins, TurnRead
from engrain.contracts.leases import LeaseStore, SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.sessions import SessionStore
from engrain.contracts.text import cut_text, repair_text
from engrain.contracts.transcript import SourceMarks, TranscriptStore
from engrain.contracts.workspace import Workspace

T = TypeVar("T")

_TRIES: Final = 3
_OPEN_MAX: Final = 4
_BUSY_WAIT_S: Final = 2 * limits.import_lease_ttl_us / limits.SECOND_US
_BUSY_STEP_S: Final = 0.25


class ImportStores(msgspec.Struct, frozen=True, kw_only=True):
    """The stores that an import writes to."""

    sessions: SessionStore
    leases: LeaseStore
    transcript: TranscriptStore


class _Filling(msgspec.Struct, kw_only=True):
    """A session being filled: what it holds, under which lease, and how its history ends."""

    session_id: SessionId
    marks: SourceMarks
    lease: SessionLease | None = None
    last_source: str | None = None
    last_turn: int = 0

    def unknown(self, turn: TurnRead) -> list[ImportedEvent]:
        return [one for one in turn.events if one.source_id not in self.marks]

    def turn_of(self, turn: TurnRead, new: Sequence[ImportedEvent]) -> int | None:
        """The turn that `new` continues: the session may end in the middle of what was said."""
        before = turn.events.index(new[0]) - 1
        continues = before >= 0 and turn.events[before].source_id == self.last_source
        return self.last_turn if continues else None


class Intake:
    """Takes one file's turns in. At most `_OPEN_MAX` sessions are held at a time."""

    def __init__(
        self,
        place: tuple[Scope, Workspace, str],
        stores: ImportStores,
        report: ImportReport,
        *,
        on_wait: Callable[[], None],
    ) -> None:
        """`place` is the scope, the workspace of new sessions, and the format of the file.

        `on_wait` is called while another import holds a session that this one has turns for.
        """
        self._scope, self._workspace, self._format = place
        self._stores = stores
        self._report = report
        self._on_wait = on_wait
        self._fillings: dict[str, _Filling] = {}
        self.sessions: dict[SessionId, None] = {}
        """Sessions of this file, in its order."""

    def add(self, begins: SessionBegins, turn: TurnRead) -> None:
        """Appends what is new of the turn; it is durable and in the report when this returns.

        Raises `SessionBusy` when another writer keeps the session for longer than a killed import
        could, and `InvalidValue` or `LimitExceeded` for a turn that the record refuses.
        """
        filling = self._filling(begins)
        for _ in range(_TRIES - 1):
            try:
                return self._add_new(filling, turn)
            except StaleLease:
                self._regain(filling)
        return self._add_new(filling, turn)

    def _add_new(self, filling: _Filling, turn: TurnRead) -> None:
        new = filling.unknown(turn)
        if new and filling.lease is None:
            self._claim(filling)
            new = filling.unknown(turn)
        if new:
            self._append(filling, turn, new)
        self._report.events_known += len(turn.events) - len(new)

    def close(self) -> None:
        """Frees every session that is held."""
        while self._fillings:
            self._free(self._fillings.pop(next(iter(self._fillings))))

    # Sessions ------------------------------------------------------------------------------------

    def _filling(self, begins: SessionBegins) -> _Filling:
        """The session of the source, made the one that is used last."""
        filling = self._fillings.pop(begins.source_id, None) or self._open(begins)
        self._fillings[begins.source_id] = filling
        if len(self._fillings) > _OPEN_MAX:
            self._free(self._fillings.pop(next(iter(self._fillings))))
        return filling

    def _open(self, begins: SessionBegins) -> _Filling:
        source = (self._format, begins.source_id)
        known = self._stores.sessions.find_source(self._scope, source)
        session_id = known.id if known else self._start(begins, source)
        if known and session_id not in self.sessions:
            self._report.sessions_known += 1
        self.sessions[session_id] = None
        return _Filling(session_id=session_id, marks=self._read_marks(session_id))

    def _start(self, begins: SessionBegins, source: tuple[str, str]) -> SessionId:
        session = surely(
            lambda operation_id: self._stores.sessions.start(
                self._scope,
                self._workspace,
                title=_title(begins.title),
                source=source,
                operation_id=operation_id,
            )
        )
        self._report.sessions_new += 1
        return session.id

    def _read_marks(self, session_id: SessionId) -> SourceMarks:
        return self._stores.transcript.known_sources(self._scope, session_id)

    # Leases --------------------------------------------------------------------------------------

    def _claim(self, filling: _Filling) -> None:
        """A lease, the history's end, and the marks of all that was durable when it was granted."""
        lease = self._patiently(filling.session_id)
        filling.lease, filling.last_source, filling.last_turn = lease, None, 0
        for stored in self._stores.transcript.replay(lease, is_verified=False, is_bounded=False):
            filling.last_source, filling.last_turn = stored.event.source_id, stored.turn
        filling.marks = self._read_marks(filling.session_id)

    def _patiently(self, session_id: SessionId) -> SessionLease:
        """Tries again while another short lease is live, which may be our own whose grant was lost.

        A killed import's lease ends by itself.
        """
        give_up_at = time.monotonic() + _BUSY_WAIT_S
        while True:
            try:
                return self._stores.leases.claim(
                    self._scope, session_id, ttl_us=limits.import_lease_ttl_us
                )
            except (SessionBusy, Uncertain) as error:
                wait_s = error.retry_after_s or _BUSY_STEP_S
                if time.monotonic() + wait_s > give_up_at:
                    raise
                self._on_wait()
                self._free_all()  # who waits for others must not make them wait
                time.sleep(min(wait_s, _BUSY_STEP_S))

    def _regain(self, filling: _Filling) -> None:
        """Prolongs a lease that ran out while nobody took it, else gives it up."""
        assert filling.lease is not None, "a stale lease was held"
        try:
            self._stores.leases.renew(filling.lease)
        except StaleLease:
            filling.lease = None

    def _free_all(self) -> None:
        for filling in self._fillings.values():
            self._free(filling)

    def _free(self, filling: _Filling) -> None:
        lease, filling.lease = filling.lease, None
        if lease is not None:
            with suppress(EngrainError):  # expiry frees what a release could not
                self._stores.leases.release(lease)

    # Turns ---------------------------------------------------------------------------------------

    def _append(self, filling: _Filling, turn: TurnRead, new: Sequence[ImportedEvent]) -> None:
        assert filling.lease is not None, "claimed before"
        lease, continued = filling.lease, filling.turn_of(turn, new)
        events = [msgspec.structs.replace(one.event, source_id=one.source_id) for one in new]
        receipt = surely(
            lambda operation_id: self._stores.transcript.append_turn(
                lease, events, operation_id=operation_id, turn=continued
            )
        )
        for one in new:
            filling.marks.add(one.source_id)
        filling.last_source = new[-1].source_id
        filling.last_turn = continued or receipt.first_sequence
        self._report.turns_new += 1
        self._report.events_new += len(new)
        self._report.events_repaired += sum(one.event.repaired for one in new)


def surely(attempt: Callable[[OperationId | None], T]) -> T:
    """Asks again under the same operation id when an acknowledgement was lost."""
    operation_id: OperationId | None = None
    for _ in range(_TRIES - 1):
        try:
            return attempt(operation_id)
        except Uncertain as lost:
            operation_id = OperationId(lost.operation_id) if lost.operation_id else None
    return attempt(operation_id)


def _title(title: str | None) -> str | None:
    """A title as it may be stored, None when nothing of it can."""
    clean = cut_text(repair_text(title or "")[0], limits.title_bytes_max).strip()
    return clean or None
