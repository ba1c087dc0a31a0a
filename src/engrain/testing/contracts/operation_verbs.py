"""Every verb that takes an operation id, as one author asks for it, and the rows that each adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

from engrain.contracts.events import Turn
from engrain.contracts.forks import ForkRequest
from engrain.contracts.ids import OperationId, SessionId
from engrain.contracts.leases import SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.sessions import Session
from engrain.contracts.transcript import AppendReceipt
from engrain.contracts.workspace import DEFAULT_WORKSPACE, DirectoryIdentity, Workspace
from engrain.testing.contracts import ANA, begin, hold, say
from engrain.testing.engines import Engine, Stores
from engrain.testing.races import refusal

Receipt = Session | AppendReceipt
Effects = dict[str, int]

_COUNTS = ("sessions", "batches", "events", "operations", "audit", "workspaces")
ONE_EFFECT: dict[str, Effects] = {
    "start": {"sessions": 1},
    "append": {"batches": 1, "events": 1},
    "set_title": {"operations": 1},
    "fork": {"sessions": 1, "batches": 1, "events": 1},
    "relink": {"operations": 1, "audit": 1, "workspaces": 1},
}
"""The rows that each verb adds when it is done once."""


@dataclass
class Author:
    """One scope with a session that has history, one that is held, and one that moves."""

    stores: Stores
    scope: Scope
    source: Session
    written: Session
    moving: Session
    lease: SessionLease | None

    def append(self, words: str, operation: OperationId | None) -> AppendReceipt:
        """Appends a turn to the session that is held."""
        assert self.lease is not None
        events = Turn.said(words).events
        return self.stores.transcript.append_turn(self.lease, events, operation_id=operation)

    def do(self, verb: str, words: str, operation: OperationId | None) -> Receipt:
        """Asks for something that is told apart by its words."""
        return _VERBS[verb](self, words, operation)

    def refuses(self, verb: str, words: str, operation: OperationId) -> bool:
        """Whether it says that the id stands for another request."""
        return refusal(lambda: self.do(verb, words, operation)) == "operation_mismatch"


def begin_author(stores: Stores, scope: Scope = ANA) -> Author:
    """An author whose sessions are new."""
    source, written = begin(stores, scope), begin(stores, scope)
    lease = hold(stores, source, scope)
    say(stores, lease, "history")
    stores.leases.release(lease)
    moving = stores.sessions.start(scope, directory("old"))
    return Author(stores, scope, source, written, moving, hold(stores, written, scope))


def directory(name: str) -> Workspace:
    """A workspace as if there were such a directory: the store itself never looks."""
    identity = DirectoryIdentity(
        device=1, inode=crc32(name.encode()), generation=1, generation_kind="birth"
    )
    return Workspace(name=name.strip() and f"/{name}", identity=identity)


def count_rows(engine: Engine) -> Effects:
    """How many rows each table has that a verb may add to."""
    counts = ", ".join(f"(SELECT count(*) FROM {table})" for table in _COUNTS)
    (row,) = engine.alter(f"SELECT {counts}")
    return dict(zip(_COUNTS, map(int, row), strict=True))


def effects_since(engine: Engine, before: Effects) -> Effects:
    """The rows that came since, without the tables that none came to."""
    now = count_rows(engine)
    return {table: now[table] - before[table] for table in _COUNTS if now[table] != before[table]}


def session_id_of(receipt: Receipt) -> SessionId:
    """The session that a receipt speaks of."""
    return receipt.id if isinstance(receipt, Session) else receipt.session_id


def _start(author: Author, words: str, operation: OperationId | None) -> Receipt:
    return author.stores.sessions.start(
        author.scope, DEFAULT_WORKSPACE, title=words, operation_id=operation
    )


def _set_title(author: Author, words: str, operation: OperationId | None) -> Receipt:
    sessions, source = author.stores.sessions, author.source.id
    return sessions.set_title(author.scope, source, words, operation_id=operation)


def _fork(author: Author, words: str, operation: OperationId | None) -> Receipt:
    forks, request = author.stores.forks, ForkRequest(title=words)
    return forks.fork(author.scope, author.source.id, request, operation_id=operation)


def _relink(author: Author, words: str, operation: OperationId | None) -> Receipt:
    sessions, workspace = author.stores.sessions, directory(words)
    return sessions.relink(author.scope, author.moving.id, workspace, operation_id=operation)


_VERBS: dict[str, Callable[[Author, str, OperationId | None], Receipt]] = {
    "start": _start,
    "append": Author.append,
    "set_title": _set_title,
    "fork": _fork,
    "relink": _relink,
}
