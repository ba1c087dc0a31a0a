"""The SQLite engine: one write connection behind a commit queue, read connections in a pool.

Owns transactions, the identity check inside each of them, and checkpoints. Where the files come
from is `files.py`; what a connection is set to is `connections.py`.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import apsw

from engrain.contracts import limits
from engrain.contracts.clock import Clock
from engrain.contracts.errors import DatabaseReplaced, EngrainError, Refused, Uncertain
from engrain.contracts.faults import reach
from engrain.storage.database import Anchor, Parameters, Reader, Row, Writer
from engrain.storage.queries import load_queries, with_numbers
from engrain.storage.sqlite.commits import CommitQueue, Work
from engrain.storage.sqlite.connections import cause_of, translate_error
from engrain.system.locks import FileLock

T = TypeVar("T")

QUERIES = {
    name: with_numbers(statement)
    for name, statement in load_queries("engrain.storage.sqlite").items()
}
_BUSY_WAIT_MS = limits.busy_wait_us // 1_000
_BUSY_WAIT_S = limits.busy_wait_us / limits.SECOND_US
_CHECKPOINT_PAGES = 2_000
_READERS_KEPT = 8
_CLOCK_IS_COARSE_NS = 100_000_000


class SqliteTransaction:
    """Named queries on one connection; implements `Reader` and `Writer`."""

    __slots__ = ("_connection", "now_us")

    def __init__(self, connection: apsw.Connection, now_us: int) -> None:
        self._connection = connection
        self.now_us = now_us

    def one(self, query: str, **parameters: Any) -> Row | None:
        statement, in_order = QUERIES[query]
        return self._connection.execute(statement, in_order(parameters)).fetchone()

    def all(self, query: str, **parameters: Any) -> list[Row]:
        statement, in_order = QUERIES[query]
        return self._connection.execute(statement, in_order(parameters)).fetchall()

    def all_of(self, query: str, each: Sequence[Parameters]) -> list[list[Row]]:
        (statement, in_order), execute = QUERIES[query], self._connection.execute
        return [execute(statement, in_order(parameters)).fetchall() for parameters in each]

    def run(self, query: str, **parameters: Any) -> None:
        statement, in_order = QUERIES[query]
        self._connection.execute(statement, in_order(parameters))

    def run_many(self, query: str, rows: Iterable[Parameters]) -> None:
        statement, in_order = QUERIES[query]
        self._connection.executemany(statement, map(in_order, rows))


class DatabaseFile:
    """The file that was opened and its log, and whether their paths still lead to them."""

    def __init__(self, path: str, turnstile: FileLock) -> None:
        self.path = path
        self.turnstile = turnstile
        self._folder, self._log_path = str(Path(path).parent), f"{path}-wal"
        opened = os.lstat(path)
        self._device, self._inode, self._log_inode = opened.st_dev, opened.st_ino, 0
        self._folder_seen = 0

    def note_log(self) -> None:
        """Takes the log that lies there for the one that was opened; a connection must be open."""
        self._log_inode = os.lstat(self._log_path).st_ino

    def check(self) -> None:
        """Raises `DatabaseReplaced` when file or log was unlinked or replaced (INV-03).

        So does a file that was cut to nothing. SQLite goes on writing into files without a name.
        """
        try:
            file = os.lstat(self.path)
            is_opened = file.st_ino == self._inode and file.st_dev == self._device
            if is_opened and file.st_size > 0 and self._is_log_opened():
                return
        except OSError:  # nothing there, or no way to it any more
            pass
        raise DatabaseReplaced(f"{self.path} is no longer the database that was opened")

    def _is_log_opened(self) -> bool:
        """Looks at the log itself only after a name in its folder changed.

        On Linux a file whose times were looked at pays for it at its next write, and the log is
        written by every turn. A folder's time is trusted once it is older than its clock is coarse.
        """
        changed = os.lstat(self._folder).st_mtime_ns
        if changed == self._folder_seen:
            return True
        if time.time_ns() - changed > _CLOCK_IS_COARSE_NS:
            self._folder_seen = changed
        return os.lstat(self._log_path).st_ino == self._log_inode


class SqliteDatabase:
    """One open SQLite database; `file` is None for one in memory, which has one connection."""

    def __init__(
        self,
        connect: Callable[[int], apsw.Connection],
        clock: Clock,
        file: DatabaseFile | None,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._file = file
        self._only = RLock()
        """Held by whoever uses the one connection of a database in memory."""
        self._alone: AbstractContextManager[Any] = nullcontext() if file else self._only
        self._writer = connect(_BUSY_WAIT_MS)
        if file:
            file.note_log()
        self._readers: deque[apsw.Connection] = deque()
        self._queue = CommitQueue(self._enter, self._commit, self._leave, recover=self._recover)
        self._process = os.getpid()
        self._is_closed = False
        self._wal_pages = 0
        self._writer.set_wal_hook(self._note_wal)

    def _note_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _check_open(self) -> None:
        if self._is_closed:
            raise Refused("the memory is closed")
        if os.getpid() != self._process:
            raise Refused("the memory was opened before a fork; open it anew in this process")

    # Reading

    @contextmanager
    def read(self) -> Iterator[Reader]:
        with self._alone:
            self._check_open()
            connection = self._borrow()
            try:
                connection.execute("BEGIN")
                yield SqliteTransaction(connection, 0)
            except apsw.Error as error:
                raise translate_error(error) from error
            finally:
                if not connection.get_autocommit():
                    connection.execute("ROLLBACK")
                self._give_back(connection)

    def _borrow(self) -> apsw.Connection:
        if self._file is None:
            self._roll_back()  # what an interrupted read left open
            return self._writer
        try:
            return self._readers.pop()
        except IndexError:
            self._file.check()
            return self._connect(_BUSY_WAIT_MS)

    def _give_back(self, connection: apsw.Connection) -> None:
        if connection is self._writer:
            return
        if len(self._readers) >= _READERS_KEPT:
            connection.close()
            return
        self._readers.append(connection)
        if self._is_closed:
            self._close_readers()

    # Writing

    def write(self, anchor: Anchor, body: Callable[[Writer], T], *, size: int = 0) -> T:
        with self._alone:
            self._check_open()
            result: T = self._queue.submit(body, size=size, wait_s=_BUSY_WAIT_S)
        return result

    def try_write(self, anchor: Anchor, body: Callable[[Writer], T]) -> T | None:
        self._check_open()
        work = self._queue.try_submit(body) if self._file else self._try_alone(body)
        return None if work is None else work.outcome()

    def _try_alone(self, body: Callable[[Writer], T]) -> Work | None:
        """None while the one connection is in use, by this thread too: a destructor may ask."""
        if not self._only.acquire(blocking=False):
            return None
        try:
            return self._queue.try_submit(body) if self._writer.get_autocommit() else None
        finally:
            self._only.release()

    def _enter(self, wait_s: float) -> None:
        if self._file is None:
            self._roll_back()  # what an interrupted read left open
        else:
            self._file.turnstile.acquire(int(wait_s * limits.SECOND_US))
        if wait_s == 0:
            self._writer.set_busy_timeout(0)

    def _leave(self, wait_s: float) -> None:
        if self._wal_pages > _CHECKPOINT_PAGES:
            self._checkpoint()
        if wait_s == 0:
            self._writer.set_busy_timeout(_BUSY_WAIT_MS)
        if self._file is not None:
            self._file.turnstile.release()

    def _recover(self) -> None:
        """After an interrupt anywhere between `_enter` and the end of `_leave`."""
        self._roll_back()
        self._writer.set_busy_timeout(_BUSY_WAIT_MS)
        if self._file is not None:
            self._file.turnstile.recover()

    def _commit(self, batch: list[Work]) -> None:
        """Fills in every member's outcome: all in one transaction, or each in its own.

        When SQLite gives up a whole shared transaction (a full disk does that) no member is done,
        so each is run again alone.
        """
        if len(batch) == 1:
            self._commit_members(batch, self._run)
            return
        try:
            self._commit_members(batch, self._run_in_savepoint)
        except _RolledBack:
            for member in batch:
                member.error = None
                self._commit_members([member], self._run)

    def _commit_members(self, batch: list[Work], run: Callable[[Work], None]) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            for work in batch:
                run(work)
        except apsw.Error as error:
            _fail(batch, translate_error(error))
        except EngrainError as error:
            _fail(batch, error)
        except BaseException:
            self._roll_back()
            raise
        if all(work.error is not None for work in batch):
            self._roll_back()
        else:
            self._acknowledge(batch)

    def _run(self, work: Work) -> None:
        try:
            work.result = work.body(SqliteTransaction(self._writer, self._clock.now_us()))
        except apsw.Error as error:
            work.error = translate_error(error)
            work.error.__cause__ = error
        except Exception as error:  # noqa: BLE001  (raised again on the thread that asked)
            work.error = error

    def _run_in_savepoint(self, work: Work) -> None:
        self._writer.execute("SAVEPOINT member")
        self._run(work)
        if self._writer.get_autocommit():
            raise _RolledBack
        if work.error is not None:
            self._writer.execute("ROLLBACK TO member")
        self._writer.execute("RELEASE member")

    def _acknowledge(self, batch: list[Work]) -> None:
        """The files are looked at last: one that leaves its path later might as well leave then."""
        try:
            reach("commit.before")
            if self._file is not None:
                self._file.check()
            self._writer.execute("COMMIT")
            reach("commit.after")
            for work in batch:
                work.is_durable = work.error is None
        except DatabaseReplaced as replaced:
            _fail(batch, replaced)
            self._roll_back()
        except BaseException as error:
            lost = Uncertain(f"the commit was not acknowledged ({cause_of(error)})")
            lost.__cause__ = error
            _fail(batch, lost)
            self._roll_back()
            if not isinstance(error, Exception):
                raise

    def _roll_back(self) -> None:
        if not self._writer.get_autocommit():
            self._writer.execute("ROLLBACK")

    def _checkpoint(self) -> None:
        """Moves the log into the database; readers that are in the way make it try next time."""
        self._writer.set_busy_timeout(0)
        try:
            self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            self._wal_pages = 0
        except apsw.Error:  # what is committed is safe in the log, and the next write tries again
            self._wal_pages = _CHECKPOINT_PAGES // 2
        finally:
            self._writer.set_busy_timeout(_BUSY_WAIT_MS)

    def close(self) -> None:
        """Closes every connection; the last one of all processes folds the log away.

        Writes that are under way are waited for, reads close what they use when they end. Raises
        `Busy` when another thread goes on writing for longer than a writer waits.
        """
        if self._is_closed or os.getpid() != self._process:
            return
        self._is_closed = True
        with self._alone:
            self._close_readers()
            self._queue.close(_BUSY_WAIT_S)
            self._writer.close()
        if self._file is not None:
            self._file.turnstile.close()

    def _close_readers(self) -> None:
        with suppress(IndexError):  # another thread may take the last one
            while True:
                self._readers.pop().close()


class _RolledBack(Exception):
    """SQLite rolled the whole transaction back under one of its members."""


def _fail(batch: list[Work], error: BaseException) -> None:
    for work in batch:
        if not work.is_durable:
            work.error = work.error or error
