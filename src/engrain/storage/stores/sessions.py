"""Sessions: started, read, listed and titled. Leases and history have stores of their own."""

from __future__ import annotations

from uuid import UUID

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import NotFound
from engrain.contracts.ids import (
    Ids,
    OperationId,
    ScopeKey,
    SessionId,
    SessionKey,
    require_id,
)
from engrain.contracts.scope import Scope
from engrain.contracts.sessions import Session, SessionPage
from engrain.contracts.text import require_short_text
from engrain.contracts.workspace import Workspace
from engrain.rules.chain import genesis_link
from engrain.rules.cursors import seal, unseal
from engrain.rules.identity import request_digest, session_source_mark
from engrain.storage.database import Database, Reader, Row, Writer
from engrain.storage.rows import read_session, workspace_identity
from engrain.storage.stores.audit import add_entry
from engrain.storage.stores.operations import acknowledging, record_operation, repeated
from engrain.storage.stores.pages import check_page_limit
from engrain.storage.stores.scopes import KnownScope, Scopes
from engrain.storage.stores.workspaces import ensure_workspace, find_workspace, move_workspace

_CURSOR = "sessions"
_LATEST = (2**63 - 1, b"\xff" * 17)


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a session to be added."""

    session_id: SessionId
    workspace_key: int
    title: str | None
    operation_id: OperationId
    request_digest: bytes
    source_mark: bytes | None = None
    forked_from: bytes | None = None
    forked_sequence: int | None = None


Rows = list[Row]


class SqlSessionStore:
    """Implements `SessionStore` on either engine."""

    def __init__(self, database: Database, scopes: Scopes, ids: Ids) -> None:
        self._database = database
        self._scopes = scopes
        self._ids = ids

    def start(
        self,
        scope: Scope,
        workspace: Workspace,
        *,
        title: str | None = None,
        operation_id: OperationId | None = None,
        source: tuple[str, str] | None = None,
    ) -> Session:
        check_title(title)
        operation = operation_id or OperationId(self._ids.uuid7())
        with acknowledging(operation):  # a new scope has a commit of its own
            known = self._scopes.ensure(scope)
        mark = session_source_mark(known.secret, source) if source else None
        parts = (workspace_identity(workspace), (title or "").encode(), mark or b"")
        digest = request_digest(known.secret, "start", parts)
        session_id = SessionId(self._ids.uuid7())

        def body(writer: Writer) -> Session:
            if operation_id and (
                first := repeated(writer, known.key, operation_id, "start", digest)
            ):
                return _read(writer, known.key, SessionId(first.session_id))
            if mark and (row := _find_mark(writer, known.key, mark)):
                return _read(writer, known.key, SessionId(UUID(bytes=row[0])))
            new = NewSession(
                session_id=session_id,
                workspace_key=ensure_workspace(writer, known.key, workspace),
                title=title,
                operation_id=operation,
                request_digest=digest,
                source_mark=mark,
            )
            add_session(writer, known.key, new)
            return _read(writer, known.key, session_id)

        with acknowledging(operation):
            return self._database.write(known.key, body)

    def read(self, scope: Scope, session_id: SessionId) -> Session:
        known = self._scopes.find(scope)
        if known is None:
            raise NotFound("session", session_id)
        with self._database.read() as reader:
            return _read(reader, known.key, session_id)

    def find_source(self, scope: Scope, source: tuple[str, str]) -> Session | None:
        known = self._scopes.find(scope)
        if known is None:
            return None
        mark = session_source_mark(known.secret, source)
        with self._database.read() as reader:
            row = _find_mark(reader, known.key, mark)
            return _read(reader, known.key, SessionId(UUID(bytes=row[0]))) if row else None

    def list(
        self,
        scope: Scope,
        *,
        workspace: Workspace | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> SessionPage:
        check_page_limit(limit)
        known = self._scopes.find(scope)
        if known is None:
            return SessionPage((), None)
        with self._database.read() as reader:
            rows = self._list_rows(reader, known, workspace, cursor, limit + 1)
        items = tuple(read_session(row) for row in rows[:limit])
        more = len(rows) > limit
        return SessionPage(items, _seal(items[-1], known.secret) if more else None)

    def _list_rows(
        self,
        reader: Reader,
        known: KnownScope,
        workspace: Workspace | None,
        cursor: str | None,
        limit: int,
    ) -> Rows:
        opened_at, session_id = _unseal(cursor, known.secret) if cursor else _LATEST
        after = {
            "scope_key": known.key.scope,
            "before_opened_at": opened_at,
            "before_session_id": session_id,
            "limit": limit,
        }
        if workspace is None:
            return reader.all("sessions.list", **after)
        key = find_workspace(reader, known.key, workspace)
        if key is None:
            return []
        return reader.all("sessions.list_workspace", workspace_key=key, **after)

    def set_title(
        self,
        scope: Scope,
        session_id: SessionId,
        title: str,
        *,
        operation_id: OperationId | None = None,
    ) -> Session:
        check_title(title)
        known, key = resolve(self._database, self._scopes, scope, session_id)
        digest = request_digest(known.secret, "set_title", (session_id.bytes, title.encode()))
        operation = operation_id or OperationId(self._ids.uuid7())

        def body(writer: Writer) -> Session:
            if not (operation_id and repeated(writer, known.key, operation, "set_title", digest)):
                writer.run(
                    "sessions.set_title",
                    scope_key=key.scope,
                    session_key=key.session,
                    title=title,
                )
                record_operation(writer, key, operation, "set_title", digest)
            return _read(writer, known.key, session_id)

        with acknowledging(operation):
            return self._database.write(key, body)

    def relink(
        self,
        scope: Scope,
        session_id: SessionId,
        workspace: Workspace,
        *,
        operation_id: OperationId | None = None,
    ) -> Session:
        known, key = resolve(self._database, self._scopes, scope, session_id)
        identity = workspace_identity(workspace)
        digest = request_digest(known.secret, "relink", (session_id.bytes, identity))
        operation = operation_id or OperationId(self._ids.uuid7())

        def body(writer: Writer) -> Session:
            if not (operation_id and repeated(writer, known.key, operation, "relink", digest)):
                row = writer.one(
                    "sessions.find_key", scope_key=key.scope, session_id=session_id.bytes
                )
                if row is None:
                    raise NotFound("session", session_id)
                moved = move_workspace(writer, known.key, row[1], workspace)
                facts: dict[str, str | int] = {"session_id": str(session_id), "sessions": moved}
                add_entry(writer, known.key, "workspace_relinked", facts)
                record_operation(writer, key, operation, "relink", digest)
            return _read(writer, known.key, session_id)

        with acknowledging(operation):
            return self._database.write(known.key, body)


def add_session(writer: Writer, scope: ScopeKey, new: NewSession) -> SessionKey:
    """Adds the row of a new session; the writer holds its scope."""
    row = writer.one("sessions.next_key", scope_key=scope.scope)
    assert row is not None, "the scope's row is the anchor of this write"
    writer.run(
        "sessions.add",
        scope_key=scope.scope,
        session_key=row[0],
        session_id=new.session_id.bytes,
        workspace_key=new.workspace_key,
        title=new.title,
        now=writer.now_us,
        link=genesis_link(new.session_id),
        source_mark=new.source_mark,
        forked_from=new.forked_from,
        forked_sequence=new.forked_sequence,
        operation_id=new.operation_id.bytes,
        request_digest=new.request_digest,
    )
    return SessionKey(scope.scope, row[0])


def resolve(
    database: Database, scopes: Scopes, scope: Scope, session_id: SessionId
) -> tuple[KnownScope, SessionKey]:
    """The scope and the session's key; `NotFound` for what is not in this scope (INV-20)."""
    known = scopes.find(scope)
    if known is None:
        raise NotFound("session", session_id)
    with database.read() as reader:
        return known, find_key(reader, known.key, session_id)


def find_key(reader: Reader, scope: ScopeKey, session_id: SessionId) -> SessionKey:
    """The session's key in this scope; `NotFound` otherwise."""
    wanted = require_id(session_id, "session_id").bytes
    row = reader.one("sessions.find_key", scope_key=scope.scope, session_id=wanted)
    if row is None:
        raise NotFound("session", session_id)
    return SessionKey(scope.scope, row[0])


def check_title(title: str | None) -> None:
    """A title is absent, or clean text of bounded size."""
    if title is not None:
        require_short_text(title, "title", limits.title_bytes_max)


def _read(reader: Reader, scope: ScopeKey, session_id: SessionId) -> Session:
    wanted = require_id(session_id, "session_id").bytes
    row = reader.one("sessions.read", scope_key=scope.scope, session_id=wanted)
    if row is None:
        raise NotFound("session", session_id)
    return read_session(row)


def _find_mark(reader: Reader, scope: ScopeKey, mark: bytes) -> Row | None:
    return reader.one("sessions.find_source", scope_key=scope.scope, source_mark=mark)


def _seal(last: Session, secret: bytes) -> str:
    return seal(_CURSOR, (last.opened_at, last.id.hex), secret)


def _unseal(cursor: str, secret: bytes) -> tuple[int, bytes]:
    opened_at, session_id = unseal(_CURSOR, cursor, secret)
    return int(opened_at), bytes.fromhex(str(session_id))
