"""Sessions, the lease that lets one writer in, and what the store of them promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn, Protocol
from uuid import UUID

import msgspec

from engrain.contracts.events import Event, StoredEvent
from engrain.contracts.ids import OperationId, SessionId
from engrain.contracts.scope import Scope
from engrain.contracts.snapshots import SessionSnapshot
from engrain.contracts.workspace import Workspace


class ForkPoint(msgspec.Struct, frozen=True):
    """Where a fork came from: the source session and the last sequence that was taken over."""

    session_id: SessionId
    sequence: int


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One session as the store knows it. Times are UTC microseconds."""

    id: SessionId
    title: str | None
    workspace: Workspace
    created_at: int
    updated_at: int
    event_count: int
    leased_until: int | None
    forked_from: ForkPoint | None = None


class SessionPage(msgspec.Struct, frozen=True):
    """A page of sessions, newest first; `next` is the sealed cursor of the page after it."""

    items: tuple[Session, ...]
    next: str | None


class SessionLease:
    """Authority to write to one session, held by one writer at a time.

    Opaque: it cannot be copied or pickled, and its token never shows. The store fills it in and
    checks it inside the transaction of every write (INV-10).
    """

    __slots__ = ("_token", "cursor", "deadline_us", "epoch", "scope", "session_id")

    def __init__(
        self, scope: Scope, session_id: SessionId, *, token: bytes, epoch: int, deadline_us: int
    ) -> None:
        self.scope = scope
        self.session_id = session_id
        self.epoch = epoch
        self.deadline_us = deadline_us
        self.cursor: int | None = None
        """Last sequence that this lease has replayed or appended; None before the replay."""
        self._token = token

    def reveal_token(self) -> bytes:
        """The token, for the store alone."""
        return self._token

    def __repr__(self) -> str:
        return f"SessionLease(session_id={self.session_id}, epoch={self.epoch})"

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a lease is one writer's authority; it cannot be copied or pickled")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse


class AppendReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """Proof that a batch is durable. Holds no content."""

    session_id: SessionId
    operation_id: OperationId
    first_sequence: int
    last_sequence: int
    recorded_at: int
    link: str
    """Hash-chain link at the batch's end, lowercase hex."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The chain holds over `event_count` events, `erased` of them forgotten."""

    session_id: SessionId
    event_count: int
    erased: int
    link: str


class SessionStore(Protocol):
    """Durable sessions. Every verb is one transaction; another scope's session is `NotFound`."""

    def start(
        self,
        scope: Scope,
        workspace: Workspace,
        *,
        title: str | None = None,
        operation_id: OperationId | None = None,
        source: tuple[str, str] | None = None,
    ) -> Session:
        """A new empty session; it takes no lease.

        `source` = (format, original id) makes it idempotent: the same source is the same session.
        """
        ...

    def read(self, scope: Scope, session_id: SessionId) -> Session: ...

    def list(
        self,
        scope: Scope,
        *,
        workspace: Workspace | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> SessionPage: ...

    def claim(self, scope: Scope, session_id: SessionId) -> SessionLease:
        """The lease, unless another is live (`SessionBusy`)."""
        ...

    def renew(self, lease: SessionLease) -> None: ...

    def release(self, lease: SessionLease) -> None: ...

    def release_at_once(self, lease: SessionLease) -> None:
        """Best effort without waiting, for destructors; expiry recovers what it could not."""
        ...

    def replay(self, lease: SessionLease, *, is_verified: bool = True) -> Iterator[StoredEvent]:
        """The durable history, streamed; at its end the lease may append.

        Raises `Corrupt` where the chain does not hold and `LimitExceeded` past the replay bounds.
        """
        ...

    def iter_events(
        self, scope: Scope, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> Iterator[StoredEvent]:
        """Events past the exclusive sequence `after`, read-only, without a lease."""
        ...

    def append_turn(
        self,
        lease: SessionLease,
        events: Sequence[Event],
        *,
        operation_id: OperationId | None = None,
        turn: int | None = None,
    ) -> AppendReceipt:
        """All events or none, durable when it returns.

        `turn` continues the agent turn that began at that sequence; None begins a new one.
        """
        ...

    def known_sources(self, lease: SessionLease) -> set[str]:
        """Marks of the imported events that the session already holds."""
        ...

    def set_title(
        self,
        scope: Scope,
        session_id: SessionId,
        title: str,
        *,
        operation_id: OperationId | None = None,
    ) -> Session: ...

    def bind_snapshot(self, lease: SessionLease, snapshot: SessionSnapshot) -> None:
        """Writes it for an empty session; otherwise demands the identical one."""
        ...

    def read_snapshot(self, scope: Scope, session_id: SessionId) -> SessionSnapshot: ...

    def fork(
        self,
        scope: Scope,
        session_id: SessionId,
        *,
        through: int | None = None,
        snapshot: SessionSnapshot | None = None,
        title: str | None = None,
        operation_id: OperationId | None = None,
    ) -> Session:
        """A new session from the verified prefix that ends at sequence `through` (a turn's end)."""
        ...

    def verify(self, scope: Scope, session_id: SessionId) -> Verification: ...

    def redact(self, scope: Scope, session_id: SessionId, sequences: Sequence[int]) -> int:
        """Removes payloads and salts for good; headers, commitments and the chain stay."""
        ...


def parse_session_id(text: str) -> SessionId:
    """The id in `text`; raises `InvalidValue` when it is none."""
    from engrain.contracts.errors import InvalidValue

    try:
        return SessionId(UUID(text))
    except ValueError:
        raise InvalidValue("session", "is not a session id (a UUID is expected)") from None
