"""Sessions as nouns: what one is, a page of them, and what their store promises."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

import msgspec

from engrain.contracts.errors import InvalidValue
from engrain.contracts.ids import OperationId, SessionId
from engrain.contracts.scope import Scope
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
    opened_at: int
    updated_at: int
    event_count: int
    leased_until: int | None
    forked_from: ForkPoint | None = None


class SessionPage(msgspec.Struct, frozen=True):
    """A page of sessions, newest first; `next` is the sealed cursor of the page after it."""

    items: tuple[Session, ...]
    next: str | None


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
        """A new empty session, durable when it returns; it takes no lease.

        `source` = (format, original id) makes it idempotent: the same source is the same session.
        """
        ...

    def read(self, scope: Scope, session_id: SessionId) -> Session: ...

    def find_source(self, scope: Scope, source: tuple[str, str]) -> Session | None:
        """The session that was imported from `source`, if any."""
        ...

    def list(
        self,
        scope: Scope,
        *,
        workspace: Workspace | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> SessionPage:
        """Most recently opened first (a lease opens a session; starting it does too)."""
        ...

    def set_title(
        self,
        scope: Scope,
        session_id: SessionId,
        title: str,
        *,
        operation_id: OperationId | None = None,
    ) -> Session: ...

    def relink(
        self,
        scope: Scope,
        session_id: SessionId,
        workspace: Workspace,
        *,
        operation_id: OperationId | None = None,
    ) -> Session:
        """Binds every session of this one's directory to `workspace`, with an audit entry.

        `InvalidValue` unless both are directories, `SessionBusy` while one of them has a writer.
        """
        ...


def parse_session_id(text: str) -> SessionId:
    """The id in `text`; raises `InvalidValue` when it is none."""
    try:
        return SessionId(UUID(text))
    except ValueError:
        raise InvalidValue("session", "is not a session id (a UUID is expected)") from None
