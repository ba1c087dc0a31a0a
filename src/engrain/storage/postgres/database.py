"""The PostgreSQL engine: a pool, one transaction a verb, the anchor's row locked first.

Statements of a transaction travel in a pipeline, so a write that reads once costs two round trips.
`COMMIT` that fails is `Uncertain`; a deadlock or a serialisation failure has rolled back for sure
and is run again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.types.numeric import Int8Dumper
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from engrain.contracts import limits
from engrain.contracts.clock import Clock
from engrain.contracts.errors import (
    Busy,
    Corrupt,
    EngrainError,
    Refused,
    StorageFull,
    Uncertain,
)
from engrain.contracts.faults import reach
from engrain.contracts.ids import ScopeKey, SessionKey
from engrain.storage.database import Anchor, Parameters, Reader, Row, Writer
from engrain.storage.queries import ManyRows, find_many_rows, load_queries, with_pyformat

T = TypeVar("T")
Connection = psycopg.Connection[Row]

_LOADED = load_queries("engrain.storage.postgres")
QUERIES = {name: with_pyformat(statement) for name, statement in _LOADED.items()}
_MANY_ROWS = {name: find_many_rows(statement) for name, statement in _LOADED.items()}
SCHEMA = "engrain"
_WAIT_MS = limits.busy_wait_us // 1_000
_WAIT_S = limits.busy_wait_us / limits.SECOND_US
_NO_WAIT_MS = 1
"""The shortest bound that there is: 0 would mean to wait for ever."""
_IDLE_MS = 60_000
_TRIES = 4
_RERUN_PAUSE_S = 0.01
"""Times the number of tries so far: whoever was in the way takes the freed lock first."""
_RERUN = (pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation)
"""What rolled back for certain and may go better: another may have used the operation id first."""
_POOL_MAX = 32
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now"
_LOCK = _NOW + " FROM (SELECT count(*) FROM ({}) AS held) AS counted"
"""The time once the row is locked: the count has waited for it, whether or not there is one."""
_PARAMETERS_MAX = 48
"""In one statement of several rows; psycopg takes longer ones apart anew at each use (from 50)."""


class PostgresTransaction:
    """Named queries in one transaction; implements `Reader` and `Writer`."""

    __slots__ = ("_connection", "_now", "_unread")

    def __init__(self, connection: Connection, now: int | psycopg.Cursor[Row]) -> None:
        self._connection = connection
        self._unread = connection.cursor()  # one for all statements whose answer nobody reads
        self._now = now

    @property
    def now_us(self) -> int:
        """Comes with the answer to the first query of the body, without a round trip of its own."""
        if not isinstance(self._now, int):
            row = self._now.fetchone()
            assert row is not None
            self._now = int(row[0])
        return self._now

    def one(self, query: str, **parameters: Any) -> Row | None:
        return self._connection.execute(QUERIES[query], parameters, binary=True).fetchone()

    def all(self, query: str, **parameters: Any) -> list[Row]:
        return self._connection.execute(QUERIES[query], parameters, binary=True).fetchall()

    def all_of(self, query: str, each: Sequence[Parameters]) -> list[list[Row]]:
        statement = QUERIES[query]
        cursors = [self._connection.execute(statement, one, binary=True) for one in each]
        return [cursor.fetchall() for cursor in cursors]

    def run(self, query: str, **parameters: Any) -> None:
        self._unread.execute(QUERIES[query], parameters)

    def run_many(self, query: str, rows: Iterable[Parameters]) -> None:
        many = _MANY_ROWS[query]
        if many is None:
            for parameters in rows:
                self._unread.execute(QUERIES[query], parameters)
        else:
            for statement, values in _several_rows(many, map(many.in_order, rows)):
                self._unread.execute(statement, values)


def _several_rows(
    many: ManyRows, rows: Iterable[tuple[object, ...]]
) -> Iterator[tuple[str, list[object]]]:
    """Statements and their values. They stay few, for each is prepared on its own.

    They have 1, 2, 4, … rows, and in one statement the same columns are NULL in every row.
    """
    largest = 1 << max(1, _PARAMETERS_MAX // many.parameter_count).bit_length() - 1
    for _, alike in groupby(rows, _where_null):
        left = list(alike)
        while left:
            count = min(largest, 1 << len(left).bit_length() - 1)
            yield many.statement(count), list(chain.from_iterable(left[:count]))
            del left[:count]


def _where_null(row: tuple[object, ...]) -> list[bool]:
    return [value is None for value in row]


class PostgresDatabase:
    """One open PostgreSQL database. `clock` replaces the server's, for tests that hold time."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._clock = clock
        self._is_closed = False
        self._process = os.getpid()
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            min_size=1,
            max_size=_POOL_MAX,
            kwargs=connection_settings(),
            configure=configure,
            timeout=_WAIT_S,
            name="engrain",
            open=True,
        )

    @contextmanager
    def read(self) -> Iterator[Reader]:
        with self._borrow() as connection:
            try:
                with connection.pipeline():
                    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    yield PostgresTransaction(connection, 0)
                    connection.execute("COMMIT")
            except psycopg.Error as error:
                raise translate_error(error) from None  # the server's text may hold values
            finally:
                _end(connection)

    @contextmanager
    def _borrow(self, wait_s: float = _WAIT_S) -> Iterator[Connection]:
        if self._is_closed:
            raise Refused("the memory is closed")
        if os.getpid() != self._process:
            raise Refused("the memory was opened before a fork; open it anew in this process")
        try:
            connection = self._pool.getconn(wait_s)
        except PoolClosed:
            raise Refused("the memory is closed") from None
        except PoolTimeout:
            raise Busy(
                "the server gave no connection within the wait; is it running?", retry_after_s=0.5
            ) from None
        try:
            yield connection
        finally:
            self._pool.putconn(connection)

    def write(self, anchor: Anchor, body: Callable[[Writer], T], *, size: int = 0) -> T:
        for attempt in range(1, _TRIES + 1):
            try:
                return self._write_once(anchor, body, _WAIT_MS)
            except _RERUN as error:
                if attempt == _TRIES:
                    raise _gave_up(error) from None
                time.sleep(_RERUN_PAUSE_S * attempt)
        raise AssertionError("unreachable")

    def try_write(self, anchor: Anchor, body: Callable[[Writer], T]) -> T | None:
        try:
            return self._write_once(anchor, body, _NO_WAIT_MS)
        except (Busy, *_RERUN):
            return None

    def _write_once(self, anchor: Anchor, body: Callable[[Writer], T], wait_ms: int) -> T:
        """The commit travels with the last statements: if one of them fails, it is not run."""
        is_committing = False
        with self._borrow(wait_ms / 1_000) as connection:
            try:
                with connection.pipeline():
                    now = self._begin(connection, anchor, wait_ms)
                    result = body(PostgresTransaction(connection, now))
                    is_committing = True
                    reach("commit.before")
                    done = connection.execute("COMMIT")
                if done.statusmessage != "COMMIT":
                    raise Busy("the server rolled the transaction back", retry_after_s=0.1)
                reach("commit.after")
            except (psycopg.Error, OSError) as error:
                is_lost = is_committing and not _has_failed(connection)
                _end(connection)
                if is_lost:
                    why = f"the commit was not acknowledged ({type(error).__name__})"
                    raise Uncertain(why) from None
                if isinstance(error, (OSError, *_RERUN)):
                    raise
                raise translate_error(error) from None
            except BaseException:
                _end(connection)
                raise
            return result

    def _begin(
        self, connection: Connection, anchor: Anchor, wait_ms: int
    ) -> int | psycopg.Cursor[Row]:
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        if wait_ms != _WAIT_MS:
            connection.execute(f"SET LOCAL lock_timeout = {wait_ms}")
        if isinstance(anchor, SessionKey):
            key = {"scope_key": anchor.scope, "session_key": anchor.session}
            now = connection.execute(_LOCK.format(QUERIES["sessions.lock"]), key, binary=True)
        elif isinstance(anchor, ScopeKey):
            key = {"scope_key": anchor.scope}
            now = connection.execute(_LOCK.format(QUERIES["scopes.lock"]), key, binary=True)
        else:
            now = connection.execute(_NOW, binary=True)
        return now if self._clock is None else self._clock.now_us()

    def close(self) -> None:
        """Closes the pool; in a forked child, whose parent goes on using it, nothing."""
        if self._is_closed or os.getpid() != self._process:
            return
        self._is_closed = True
        self._pool.close()


def connection_settings() -> dict[str, Any]:
    """How every connection is opened: manual transactions, bounded waits, our own schema."""
    return {
        "autocommit": True,
        "application_name": "engrain",
        "options": (
            f"-c search_path={SCHEMA} -c lock_timeout={_WAIT_MS} "
            f"-c idle_in_transaction_session_timeout={_IDLE_MS} -c client_encoding=UTF8"
        ),
    }


def configure(connection: Connection) -> None:
    """Prepared from the first use; every integer travels as 64 bits."""
    connection.prepare_threshold = 0
    connection.adapters.register_dumper(int, Int8Dumper)


def _has_failed(connection: Connection) -> bool:
    """True when the server says that a statement failed, and so that nothing was committed."""
    if connection.closed or connection.broken:
        return False
    return connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR


def _end(connection: Connection) -> None:
    """Leaves no transaction open; a connection that cannot say so is closed.

    One that was interrupted in the middle of a statement would wait for an answer for ever.
    """
    if connection.closed or connection.broken:
        return
    status = connection.info.transaction_status
    if status == psycopg.pq.TransactionStatus.ACTIVE:
        connection.close()
    elif status != psycopg.pq.TransactionStatus.IDLE:
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()


def _gave_up(error: psycopg.Error) -> EngrainError:
    if isinstance(error, pg.UniqueViolation):
        return translate_error(error)
    return Busy("other writers kept standing in the way", retry_after_s=0.1)


def translate_error(error: psycopg.Error) -> EngrainError:
    """The typed error for what PostgreSQL raised; the server's own text may hold values."""
    if isinstance(error, pg.LockNotAvailable | pg.TooManyConnections | pg.CannotConnectNow):
        return Busy("the database stayed busy for the whole wait", retry_after_s=0.1)
    if isinstance(error, pg.DiskFull | pg.OutOfMemory):
        return StorageFull("the server's disk is full; nothing of this call was kept")
    if isinstance(error, pg.OperationalError | pg.InterfaceError | pg.AdminShutdown):
        return Busy(f"the server is not reachable ({type(error).__name__})", retry_after_s=1.0)
    return Corrupt(f"PostgreSQL reports {type(error).__name__} ({error.sqlstate})")
