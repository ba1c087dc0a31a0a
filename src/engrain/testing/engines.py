"""The engines that the contract suites run on, and the stores opened over one of them.

A third engine brings an `Engine` of its own; the suites ask for nothing else. Every `Engine` begins
as an empty database.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Protocol

import apsw
import psycopg

from engrain.config import Config
from engrain.contracts.clock import Clock
from engrain.contracts.ids import Ids
from engrain.contracts.workspace import Workspaces
from engrain.memory import Memory
from engrain.storage.database import Database, Row
from engrain.storage.engine import MEMORY, open_database
from engrain.storage.postgres.database import connection_settings
from engrain.storage.queries import with_pyformat
from engrain.storage.sqlite.connections import open_connection
from engrain.storage.stores.audit import SqlAuditStore
from engrain.storage.stores.episodes import SqlEpisodeStore
from engrain.storage.stores.forks import SqlForkStore
from engrain.storage.stores.journal import SqlJournalStore
from engrain.storage.stores.leases import SqlLeaseStore
from engrain.storage.stores.scopes import Scopes
from engrain.storage.stores.sessions import SqlSessionStore
from engrain.storage.stores.snapshots import SqlSnapshotStore
from engrain.storage.stores.transcript import SqlTranscriptStore
from engrain.system.clock import SystemClock
from engrain.system.ids import SystemIds
from engrain.system.workspace import SystemWorkspaces

_ALTER_WAIT_MS = 5_000


class Engine(Protocol):
    """One empty database of an engine under test."""

    @property
    def name(self) -> str: ...

    @property
    def url(self) -> str | None:
        """Where other processes find the same database; None when none can."""
        ...

    def open(self, clock: Clock | None = None) -> Database:
        """The database, under a held clock or the engine's own time.

        With a `url`, every call opens the same one; without, each opens one of its own.
        """
        ...

    def alter(self, statement: str, **parameters: object) -> list[Row]:
        """Runs one statement behind the stores' back, in a transaction of its own.

        Parameters are `:name`. Without a `url`, it reaches the database that was opened last.
        """
        ...


class SqliteFileEngine:
    """SQLite in a file, which must lie in a private directory."""

    name = "sqlite-file"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = str(path)

    def open(self, clock: Clock | None = None) -> Database:
        return _open(self.url, clock)

    def alter(self, statement: str, **parameters: object) -> list[Row]:
        connection = open_connection(self.url, busy_wait_ms=_ALTER_WAIT_MS)
        try:
            return _run(connection, statement, parameters)
        finally:
            connection.close()


class SqliteMemoryEngine:
    """SQLite in the memory of one process."""

    name = "sqlite-memory"
    url = None

    def __init__(self) -> None:
        self._last: Database | None = None

    def open(self, clock: Clock | None = None) -> Database:
        self._last = _open(MEMORY, clock)
        return self._last

    def alter(self, statement: str, **parameters: object) -> list[Row]:
        connection = getattr(self._last, "_writer", None)
        assert isinstance(connection, apsw.Connection), "open the database first"
        return _run(connection, statement, parameters)


class PostgresEngine:
    """An empty database on a PostgreSQL server."""

    name = "postgresql"

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, clock: Clock | None = None) -> Database:
        return _open(self.url, clock)

    def alter(self, statement: str, **parameters: object) -> list[Row]:
        with psycopg.connect(self.url, **connection_settings()) as connection:
            cursor = connection.execute(with_pyformat(statement).encode(), parameters)
            return cursor.fetchall() if cursor.description else []


class Stores:
    """Every store over one open database, and the `Memory` over the same. Close it, or use `with`.

    They share nothing but the database, as stores of two processes do.
    """

    def __init__(self, database: Database, clock: Clock, ids: Ids, workspaces: Workspaces) -> None:
        self.database = database
        self.scopes = Scopes(database, ids, clock)
        self.audit = SqlAuditStore(database, self.scopes)
        self.sessions = SqlSessionStore(database, self.scopes, ids)
        self.leases = SqlLeaseStore(database, self.scopes, ids)
        self.transcript = SqlTranscriptStore(database, self.scopes, ids, workspaces, self.audit)
        self.journal = SqlJournalStore(database, self.scopes, ids, workspaces)
        self.snapshots = SqlSnapshotStore(database, self.scopes, workspaces)
        self.forks = SqlForkStore(database, self.scopes, ids)
        self.episodes = SqlEpisodeStore(database, self.scopes)
        config = Config(url="the engine under test")
        self.memory = Memory(database, config, clock=clock, ids=ids, workspaces=workspaces)

    def close(self) -> None:
        """Closes the memory and with it the database."""
        self.memory.close()

    def __enter__(self) -> Stores:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_stores(
    engine: Engine,
    clock: Clock | None = None,
    *,
    ids: Ids | None = None,
    workspaces: Workspaces | None = None,
) -> Stores:
    """The stores over `engine`, under a held clock or under the engine's own time."""
    return Stores(
        engine.open(clock),
        clock or SystemClock(),
        ids or SystemIds(),
        workspaces or SystemWorkspaces(),
    )


def _open(url: str, clock: Clock | None) -> Database:
    return open_database(url, clock or SystemClock(), is_clock_held=clock is not None)


def _run(connection: apsw.Connection, statement: str, parameters: dict[str, object]) -> list[Row]:
    return list(connection.execute(statement, parameters))
