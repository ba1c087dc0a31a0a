"""Sessions as callers use them: started, listed, leased to one writer, forked and verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from engrain.contracts.arguments import require_sequence, require_whole
from engrain.contracts.errors import EngrainError, InvalidValue
from engrain.contracts.events import Event, StoredEvent, Turn
from engrain.contracts.forks import ForkRequest, ForkStore
from engrain.contracts.ids import OperationId, SessionId, require_operation
from engrain.contracts.leases import LeaseStore, SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.sessions import Session, SessionPage, SessionStore
from engrain.contracts.snapshots import SessionSnapshot, SnapshotStore
from engrain.contracts.text import require_text
from engrain.contracts.transcript import AppendReceipt, TranscriptStore, Verification
from engrain.contracts.workspace import DEFAULT_WORKSPACE, Workspace, Workspaces, named_workspace

WorkspaceLike = str | Path | None
"""A name, a directory as a `Path`, or None for the workspace `default`."""


class SessionWriter:
    """The one writer of a session, its history replayed and verified.

    Use it in a `with` block: leaving it frees the session durably. Every append is fenced; a
    writer that was overtaken gets `StaleLease`.
    """

    def __init__(
        self,
        lease: SessionLease,
        leases: LeaseStore,
        transcript: TranscriptStore,
        snapshots: SnapshotStore,
        workspaces: Workspaces,
    ) -> None:
        self._lease = lease
        self._leases = leases
        self._transcript = transcript
        self._snapshots = snapshots
        self._workspaces = workspaces
        self._is_released = False
        self.history: tuple[StoredEvent, ...] = ()
        """What the session held at the last replay, oldest first."""

    @property
    def scope(self) -> Scope:
        return self._lease.scope

    @property
    def session_id(self) -> SessionId:
        return self._lease.session_id

    def replay(self) -> tuple[StoredEvent, ...]:
        """Reads and verifies the durable history anew; the writer may append after it."""
        self.history = tuple(self._transcript.replay(self._lease))
        return self.history

    def append(
        self, turn: Turn | Sequence[Event], *, operation_id: OperationId | None = None
    ) -> AppendReceipt:
        """Appends a whole turn; durable when it returns.

        Raises `Uncertain` when the acknowledgement was lost: repeat with its `operation_id`.
        """
        events = turn.events if isinstance(turn, Turn) else turn
        require_sequence(events, "turn", "events, or a Turn of them")
        operation = require_operation(operation_id)
        return self._transcript.append_turn(self._lease, events, operation_id=operation)

    def bind_snapshot(self, snapshot: SessionSnapshot) -> None:
        """Writes the snapshot of an empty session, else demands the identical one."""
        self._snapshots.bind(self._lease, snapshot)

    def validate_workspace(self) -> None:
        """Raises `WorkspaceMismatch` unless the bound directory still is the same one."""
        if self._lease.workspace.is_directory:
            self._workspaces.validate(self._lease.workspace)

    def renew(self) -> None:
        """Prolongs the lease; appends do so by themselves."""
        self._leases.renew(self._lease)

    def release(self) -> None:
        """Frees the session durably. Releasing twice is harmless."""
        if not self._is_released:
            self._leases.release(self._lease)
            self._is_released = True

    def __enter__(self) -> SessionWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.release()
            return
        with suppress(EngrainError):  # the error on its way matters more; expiry frees the rest
            self.release()

    def __del__(self) -> None:
        if not self._is_released:
            with suppress(Exception):  # best effort without waiting; expiry frees the rest
                self._leases.release_at_once(self._lease)


class Sessions:
    """`memory.sessions`: everything about sessions of a scope."""

    def __init__(
        self,
        sessions: SessionStore,
        leases: LeaseStore,
        transcript: TranscriptStore,
        snapshots: SnapshotStore,
        forks: ForkStore,
        workspaces: Workspaces,
    ) -> None:
        self._sessions = sessions
        self._leases = leases
        self._transcript = transcript
        self._snapshots = snapshots
        self._forks = forks
        self._workspaces = workspaces

    def start(
        self,
        scope: Scope,
        *,
        title: str | None = None,
        workspace: WorkspaceLike = None,
        operation_id: OperationId | None = None,
    ) -> Session:
        """A new empty session, durable when it returns. A `Path` binds that directory."""
        bound, operation = self.workspace(workspace), require_operation(operation_id)
        return self._sessions.start(scope, bound, title=title, operation_id=operation)

    def workspace(self, workspace: WorkspaceLike) -> Workspace:
        """The workspace that a name or a directory stands for, with the directory's identity."""
        if workspace is None:
            return DEFAULT_WORKSPACE
        if isinstance(workspace, Path):
            return self._workspaces.read(str(workspace))
        return named_workspace(require_text(workspace, "workspace"))

    def read(self, scope: Scope, session_id: SessionId) -> Session:
        """The session; `NotFound` when there is none in this scope."""
        return self._sessions.read(scope, session_id)

    def list(
        self,
        scope: Scope,
        *,
        workspace: WorkspaceLike = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> SessionPage:
        """The scope's sessions, most recently opened first; `workspace` narrows them to one."""
        bound = None if workspace is None else self.workspace(workspace)
        return self._sessions.list(scope, workspace=bound, cursor=cursor, limit=limit)

    def lease(
        self, scope: Scope, session_id: SessionId, *, workspace: WorkspaceLike = None
    ) -> SessionWriter:
        """The one writer of the session, its history replayed; `SessionBusy` while it has one.

        With `workspace` the session must be bound to it; a directory that was renamed since is
        known by its new path from now on.
        """
        claimed = None if workspace is None else self.workspace(workspace)
        writer = SessionWriter(
            self._leases.claim(scope, session_id, workspace=claimed),
            self._leases,
            self._transcript,
            self._snapshots,
            self._workspaces,
        )
        try:
            writer.validate_workspace()
            writer.replay()
        except BaseException:
            with suppress(EngrainError):
                writer.release()
            raise
        return writer

    def iter_events(
        self, scope: Scope, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> Iterator[StoredEvent]:
        """Events past the sequence `after`, without a lease."""
        require_whole(after, "after")
        if limit is not None:
            require_whole(limit, "limit")
        return self._transcript.iter_events(scope, session_id, after=after, limit=limit)

    def set_title(
        self,
        scope: Scope,
        session_id: SessionId,
        title: str,
        *,
        operation_id: OperationId | None = None,
    ) -> Session:
        """Names the session anew."""
        require_text(title, "title")
        operation = require_operation(operation_id)
        return self._sessions.set_title(scope, session_id, title, operation_id=operation)

    def read_snapshot(self, scope: Scope, session_id: SessionId) -> SessionSnapshot:
        """What the session was made with; `NotFound` when nothing was bound."""
        return self._snapshots.read(scope, session_id)

    def fork(
        self,
        scope: Scope,
        session_id: SessionId,
        *,
        through: int | None = None,
        title: str | None = None,
        snapshot: SessionSnapshot | None = None,
        operation_id: OperationId | None = None,
    ) -> Session:
        """A new session from the verified prefix that ends at `through`, or from all of it."""
        request = ForkRequest(through=through, title=title, snapshot=snapshot)
        operation = require_operation(operation_id)
        return self._forks.fork(scope, session_id, request, operation_id=operation)

    def verify(self, scope: Scope, session_id: SessionId) -> Verification:
        """Recomputes the whole hash chain; `Corrupt` at the first link that does not hold."""
        return self._transcript.verify(scope, session_id)

    def validate_workspace(self, scope: Scope, session_id: SessionId) -> None:
        """The check that every append makes, so that a resume can fail before a model loads."""
        workspace = self._sessions.read(scope, session_id).workspace
        if workspace.is_directory:
            self._workspaces.validate(workspace)

    def relink_workspace(
        self,
        scope: Scope,
        session_id: SessionId,
        directory: Path,
        *,
        operation_id: OperationId | None = None,
    ) -> Session:
        """An operator's word that `directory` is this session's workspace, copied or restored.

        Every session of the same directory moves along, and an audit entry says how many.
        `InvalidValue` for a session of a named workspace, which has no directory to move from;
        `SessionBusy` while one of them has a writer.
        """
        if not isinstance(directory, Path):
            raise InvalidValue("directory", "must be a Path")
        workspace = self._workspaces.read(str(directory))
        operation = require_operation(operation_id)
        return self._sessions.relink(scope, session_id, workspace, operation_id=operation)
