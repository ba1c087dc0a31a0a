"""The errors a caller can meet, as one tree.

    EngrainError
    ├── Refused            the request itself is wrong: change it, do not repeat it
    │   ├── InvalidValue       a value breaks a stated rule
    │   ├── InvalidJson        a JSON document breaks the bounds
    │   ├── UnknownFormat      no reader recognises the file
    │   ├── UnsafeFile         a file or directory is not private enough to trust
    │   ├── UnsupportedSystem  this machine lacks what safety needs
    │   ├── NewerSchema        the database was written by a newer Engrain
    │   ├── DatabaseMissing    the database is gone, its companions are not
    │   └── OperationTooOld    an operation id from before the retention floor
    ├── Conflict           somebody else's state stands in the way
    │   ├── StaleLease         the lease was taken over, released or has expired
    │   ├── ReplayRequired     a lease must replay before its first append
    │   ├── StaleReplay        history moved since the replay: replay again
    │   ├── TurnOpen           an agent turn is unfinished: finish or recover it
    │   ├── UnknownEffects     tools may have run and nobody knows: a person decides
    │   ├── SnapshotMismatch   the session was made with another configuration
    │   ├── WorkspaceMismatch  the directory is not the one the session is bound to
    │   ├── OperationMismatch  the operation id was used for another request
    │   ├── ModelInUse         sessions hold on to the model, or nobody can say that none does
    │   ├── ModelChanged       the model's files are not those that were installed
    │   └── Tombstoned         the id was forgotten and never comes back
    ├── Busy               try again later; nothing was done
    │   └── SessionBusy        another lease is live
    ├── Uncertain          the acknowledgement was lost; repeat with the same operation id
    ├── Corrupt            stored data contradicts itself
    │   └── DatabaseReplaced   the file under the open database was swapped
    ├── LimitExceeded      a bound of `contracts.limits` was reached
    ├── StorageFull        the disk is full; nothing of the call was kept
    └── NotFound           not in this scope

Each class has a stable `code`, the same in Python, the command line and every other face. Facts
are attributes, listed in `facts()`. No message holds memory content.
"""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

_CALLS_NAMED_MAX = 8


class EngrainError(Exception):
    """Root of every error that Engrain raises on purpose."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, **facts: object
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        self._facts = facts

    def facts(self) -> dict[str, object]:
        """The error as a flat record for faces: code, message, retryable and what it knows."""
        record: dict[str, object] = {"code": self.code, "message": self.message}
        record["retryable"] = self.retryable
        if self.retry_after_s is not None:
            record["retry_after_s"] = self.retry_after_s
        return record | self._facts


class Refused(EngrainError):
    """The request is wrong as it stands; repeating it cannot help."""

    code = "refused"


class InvalidValue(Refused):
    """A value breaks a stated rule; `field` names it."""

    code = "invalid_value"

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}", field=field)
        self.field = field


class InvalidJson(Refused):
    """A JSON document is malformed or outside the bounds; `why` says which."""

    code = "invalid_json"

    def __init__(self, why: str) -> None:
        super().__init__(f"JSON refused: {why}")
        self.why = why


class UnknownFormat(Refused):
    """No reader recognises the file."""

    code = "unknown_format"


class UnsafeFile(Refused):
    """A file or directory is not what safety needs; `path` and `reason` say which and why."""

    code = "unsafe_file"

    def __init__(self, path: str, reason: str, remedy: str = "") -> None:
        hint = f"; {remedy}" if remedy else ""
        super().__init__(f"{path}: {reason}{hint}", path=path, reason=reason)
        self.path = path
        self.reason = reason


class UnsupportedSystem(Refused):
    """The machine or a library is not fit to keep the promises."""

    code = "unsupported_system"


class NewerSchema(Refused):
    """The database holds a migration this version does not know."""

    code = "newer_schema"


class DatabaseMissing(Refused):
    """The database is gone while its companion files remain; nothing was created."""

    code = "database_missing"

    def __init__(self, path: str, companion: str) -> None:
        super().__init__(
            f"{path} is missing but {companion} is there; restore the database from a backup, "
            f"or remove {companion} to start anew",
            path=path,
            companion=companion,
        )
        self.path = path


class OperationTooOld(Refused):
    """The operation id is older than the retention floor, so its outcome is no longer known."""

    code = "operation_too_old"


class Conflict(EngrainError):
    """Another writer's state stands in the way."""

    code = "conflict"


class StaleLease(Conflict):
    """The lease no longer holds the session: taken over, released or expired."""

    code = "stale_lease"


class ReplayRequired(Conflict):
    """A lease replays the durable history before its first append."""

    code = "replay_required"


class StaleReplay(Conflict):
    """The history moved since this lease replayed it; replay again."""

    code = "stale_replay"
    retryable = True


class TurnOpen(Conflict):
    """The session has an unfinished agent turn, which alone may write to it until it ends."""

    code = "turn_open"

    def __init__(self, session_id: UUID) -> None:
        super().__init__(
            f"session {session_id} has an unfinished agent turn; if its process is gone, recover "
            "the session",
            session_id=str(session_id),
        )
        self.session_id = session_id


class UnknownEffects(Conflict):
    """Tools were started and left no result; `calls` says which, with their idempotency keys."""

    code = "unknown_effects"

    def __init__(self, session_id: UUID, calls: tuple[dict[str, str], ...]) -> None:
        named = [f"{call['tool']} ({call['idempotency_key']})" for call in calls[:_CALLS_NAMED_MAX]]
        more = len(calls) - len(named)
        super().__init__(
            f"session {session_id}: nobody knows what {', '.join(named)}"
            f"{f' and {more} more' if more else ''} did, since the process ended meanwhile; look "
            f"it up by the idempotency key, then: engrain sessions recover {session_id} "
            "--accept-unknown-effects",
            session_id=str(session_id),
            calls=list(calls),
        )
        self.session_id = session_id
        self.calls = calls


class SnapshotMismatch(Conflict):
    """The session's snapshot differs from the one offered; `differences` says where, to be read."""

    code = "snapshot_mismatch"

    def __init__(self, message: str, differences: tuple[str, ...] = ()) -> None:
        super().__init__(message, differences=list(differences))
        self.differences = differences


class WorkspaceMismatch(Conflict):
    """The directory is not the one the session is bound to."""

    code = "workspace_mismatch"


class OperationMismatch(Conflict):
    """The operation id was already used for another request."""

    code = "operation_mismatch"


class ModelInUse(Conflict):
    """The model stays; `sessions` says how many hold on to it, None when that is not known."""

    code = "model_in_use"

    def __init__(self, name: str, sessions: int | None, why: str = "") -> None:
        reason = (
            f"whether sessions are bound to it could not be found out: {why}"
            if sessions is None
            else f"{sessions:,} session(s) are bound to it"
        )
        super().__init__(f"model {name} stays: {reason}", name=name, sessions=sessions)
        self.sessions = sessions


class ModelChanged(Conflict):
    """The model's files are not those that were installed; `why` says what differs."""

    code = "model_changed"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"model {name}: {why}", name=name, why=why)
        self.why = why


class Tombstoned(Conflict):
    """The id was forgotten; a late write to it is refused for ever."""

    code = "tombstoned"


class Busy(EngrainError):
    """The call waited its bound and gave up; nothing was done."""

    code = "busy"
    retryable = True


class SessionBusy(Busy):
    """Another lease on the session is live until `lease_until_us`."""

    code = "session_busy"

    def __init__(self, session_id: UUID, lease_until_us: int, retry_after_s: float) -> None:
        super().__init__(
            f"session {session_id} is held by another writer",
            retry_after_s=retry_after_s,
            session_id=str(session_id),
            lease_until_us=lease_until_us,
        )
        self.session_id = session_id
        self.lease_until_us = lease_until_us


class Uncertain(EngrainError):
    """The acknowledgement was lost, the work may be done; repeat with `operation_id`."""

    code = "uncertain"
    retryable = True

    def __init__(self, message: str, operation_id: UUID | None = None) -> None:
        super().__init__(message)
        if operation_id is not None:
            self._facts["operation_id"] = str(operation_id)
        self.operation_id = operation_id


class Corrupt(EngrainError):
    """Stored data contradicts itself."""

    code = "corrupt"


class DatabaseReplaced(Corrupt):
    """The path no longer leads to the database that was opened; nothing was acknowledged."""

    code = "database_replaced"


class LimitExceeded(EngrainError):
    """A bound was reached; `limit` names it, `most` is its value."""

    code = "limit_exceeded"

    def __init__(self, limit: str, most: int, found: int | None = None) -> None:
        seen = "" if found is None else f", found {found:,}"
        super().__init__(f"{limit}: at most {most:,}{seen}", limit=limit, most=most)
        self.limit = limit
        self.most = most


class StorageFull(EngrainError):
    """The disk is full; nothing of the call was kept."""

    code = "storage_full"
    retryable = True


class NotFound(EngrainError):
    """There is no such thing in this scope; another scope's things look the same."""

    code = "not_found"

    def __init__(self, kind: str, name: object, *, where: str = " in this scope") -> None:
        super().__init__(f"no {kind} {name}{where}", kind=kind)
        self.kind = kind
