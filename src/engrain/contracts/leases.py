"""The lease: one writer's authority over one session, fenced in every write."""

from __future__ import annotations

from typing import NoReturn, Protocol

import msgspec

from engrain.contracts import limits
from engrain.contracts.ids import SessionId, SessionKey
from engrain.contracts.scope import Scope
from engrain.contracts.workspace import Workspace


class LeaseBinding(msgspec.Struct, frozen=True):
    """What the store looked up when it granted the lease, so that no write looks it up again."""

    key: SessionKey
    secret: bytes
    workspace: Workspace

    def __repr__(self) -> str:
        return "LeaseBinding(…)"


class SessionLease:
    """Authority to write to one session, held by one writer at a time.

    Opaque: it cannot be copied or pickled, and its token never shows. The store grants it and
    checks it inside the transaction of every write (INV-10).
    """

    __slots__ = (
        "_binding",
        "_token",
        "cursor",
        "deadline_us",
        "epoch",
        "known_calls",
        "scope",
        "session_id",
        "ttl_us",
    )

    def __init__(
        self,
        scope: Scope,
        session_id: SessionId,
        *,
        binding: LeaseBinding,
        token: bytes,
        epoch: int,
        deadline_us: int,
        ttl_us: int = limits.lease_ttl_us,
    ) -> None:
        self.scope = scope
        self.session_id = session_id
        self.epoch = epoch
        self.deadline_us = deadline_us
        self.ttl_us = ttl_us
        self.cursor: int | None = None
        """Last sequence that this lease has replayed or appended; None before the replay."""
        self.known_calls: set[str] = set()
        """Tool-call ids that the history holds already; filled by the replay."""
        self._binding = binding
        self._token = token

    def reveal(self) -> tuple[LeaseBinding, bytes]:
        """Binding and token digest, for the stores alone."""
        return self._binding, self._token

    @property
    def workspace(self) -> Workspace:
        return self._binding.workspace

    def __repr__(self) -> str:
        return f"SessionLease(session_id={self.session_id}, epoch={self.epoch})"

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a lease is one writer's authority; it cannot be copied or pickled")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse


class LeaseStore(Protocol):
    """Grants, prolongs and ends leases, each in one transaction."""

    def claim(
        self,
        scope: Scope,
        session_id: SessionId,
        *,
        ttl_us: int = limits.lease_ttl_us,
        workspace: Workspace | None = None,
    ) -> SessionLease:
        """The lease, unless another is live (`SessionBusy`). `ttl_us` may be shorter than usual.

        With `workspace` the session must be bound to it (`WorkspaceMismatch`); a directory that
        was renamed since is known by its new path from now on.
        """
        ...

    def renew(self, lease: SessionLease) -> None:
        """A fresh deadline; an expired lease that nobody took may be renewed by its holder."""
        ...

    def release(self, lease: SessionLease) -> None:
        """Frees the session durably; releasing twice is harmless."""
        ...

    def release_at_once(self, lease: SessionLease) -> None:
        """Best effort without waiting, for destructors; expiry recovers what it could not."""
        ...
