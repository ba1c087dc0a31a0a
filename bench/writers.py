"""Many writers in one process: group commit against a connection for every thread.

Both sides run the same stores over the same schema. They differ in the engine alone: one has the
commit queue with its turnstile, the other opens a connection for each thread and lets SQLite's busy
handler sort them out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from engrain import Memory
from engrain.config import Config
from engrain.contracts.events import Event
from engrain.services.sessions import SessionWriter
from engrain.storage.database import Anchor, Reader, Writer
from engrain.storage.sqlite.connections import open_connection
from engrain.storage.sqlite.database import SqliteTransaction
from engrain.system.clock import SystemClock
from engrain.system.ids import SystemIds
from engrain.system.workspace import SystemWorkspaces
from floors import BUSY_WAIT_MS, CHECKPOINT_PAGES
from material import make_turns
from report import Goal, Line, Section, lines_of, ratio
from run import Run
from timing import US, Loop, interleave, median, percentile, quiet
from turns import open_writer

T = TypeVar("T")

_WRITERS = 64
_TURNS_A_ROUND = 8
_ROUNDS = 6
_WARM_UP = 2
_ALONE_ROUNDS = 40
_BLOCK = 20


class ConnectionPerThread:
    """`Database` without a commit queue; implements what the transcript needs of one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clock = SystemClock()
        self._own = threading.local()
        self._opened: list[apsw.Connection] = []

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = open_connection(str(self._path), busy_wait_ms=BUSY_WAIT_MS)
            connection.set_wal_hook(self._note_wal)
            self._own.connection = connection
            self._opened.append(connection)
        return connection

    def _note_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._own.wal_pages = pages
        return apsw.SQLITE_OK

    @contextmanager
    def read(self) -> Iterator[Reader]:
        connection = self._connection()
        connection.execute("BEGIN")
        try:
            yield SqliteTransaction(connection, 0)
        finally:
            connection.execute("ROLLBACK")

    def write(self, anchor: Anchor, body: Callable[[Writer], T], *, size: int = 0) -> T:
        connection = self._connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = body(SqliteTransaction(connection, self._clock.now_us()))
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        if self._own.wal_pages > CHECKPOINT_PAGES:
            self._checkpoint(connection)
        return result

    def _checkpoint(self, connection: apsw.Connection) -> None:
        connection.set_busy_timeout(0)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.BusyError:
            pass
        finally:
            connection.set_busy_timeout(BUSY_WAIT_MS)

    def try_write(self, anchor: Anchor, body: Callable[[Writer], T]) -> T | None:
        return self.write(anchor, body)

    def close(self) -> None:
        for connection in self._opened:
            connection.close()


class Crowd:
    """Threads with a session each; a block is a round in which all of them append at once.

    The threads live through all rounds, as connections of theirs do.
    """

    def __init__(self, memory: Memory, turns: Sequence[list[Event]]) -> None:
        self._turns = turns
        self._count = 0
        self._taken: list[int] = []
        self.turns_per_s: list[float] = []
        self._start = threading.Barrier(_WRITERS + 1)
        self._end = threading.Barrier(_WRITERS + 1)
        self._is_over = False
        self._errors: list[BaseException] = []
        writers = [open_writer(memory) for _ in range(_WRITERS)]
        self._threads = [threading.Thread(target=self._live, args=(one,)) for one in writers]
        for thread in self._threads:
            thread.start()

    def block(self, count: int) -> list[int]:
        self._count, self._taken = count, []
        with quiet():
            self._start.wait()
            began = time.perf_counter()
            self._end.wait()
        self.turns_per_s.append(_WRITERS * count / (time.perf_counter() - began))
        if self._errors:
            raise self._errors[0]
        return self._taken

    def _live(self, writer: SessionWriter) -> None:
        at = 0
        while True:
            self._start.wait()
            if self._is_over:
                writer.release()
                return
            try:
                self._append(writer, at)
            except BaseException as error:  # noqa: BLE001  (`block` raises it)
                self._errors.append(error)
            at += self._count
            self._end.wait()

    def _append(self, writer: SessionWriter, at: int) -> None:
        taken = []
        for turn in self._turns[at : at + self._count]:
            began = time.perf_counter_ns()
            writer.append(turn)
            taken.append(time.perf_counter_ns() - began)
        self._taken += taken

    def close(self) -> None:
        """Lets every thread release its lease and end."""
        self._is_over = True
        self._start.wait()
        for thread in self._threads:
            thread.join()


def measure(run: Run) -> Section:
    """64 writers, then one, on both engines."""
    directory = run.fresh("writers")
    crowds, taken = _measure_crowds(run, directory)
    alone = _measure_alone(run, directory)
    queue, each = crowds.values()
    speed, speed_each = median(queue.turns_per_s[_WARM_UP:]), median(each.turns_per_s[_WARM_UP:])
    p99, p99_each = (percentile(spent, 0.99) for spent in taken.values())
    return Section(
        "64 writers in one process",
        "Turns of 4 events of 1 KB, 64 threads with a session each, and one thread.",
        [*lines_of(taken), *_alone_lines(alone)],
        [
            Goal(
                "turns/s of 64 writers against a connection per thread",
                speed / speed_each,
                2.0,
                at_least=True,
            ),
            Goal("p99 of 64 writers against the same", p99 / p99_each, 1 / 20),
            Goal("one writer against the same", ratio(alone, *_ALONE), 1.10),
        ],
        [
            f"Group commit: {speed:,.0f} turns/s, p99 {p99 / US:,.0f} µs. A connection per "
            f"thread: {speed_each:,.0f} turns/s, p99 {p99_each / US:,.0f} µs."
        ],
    )


def _measure_crowds(run: Run, directory: Path) -> tuple[dict[str, Crowd], dict[str, list[int]]]:
    turns = make_turns((run.rounds(_ROUNDS) + _WARM_UP) * _TURNS_A_ROUND)
    with (
        Memory.open(directory / "queue.sqlite3") as queue,
        _open_per_thread(directory / "each.sqlite3") as each,
    ):
        crowds = {
            "64 writers, group commit": Crowd(queue, turns),
            "64 writers, a connection each": Crowd(each, turns),
        }
        try:
            taken = interleave(
                crowds, rounds=run.rounds(_ROUNDS), block=_TURNS_A_ROUND, warm_up=_WARM_UP
            )
        finally:
            for crowd in crowds.values():
                crowd.close()
    return crowds, taken


_ALONE = ("one writer, group commit", "one writer, its own connection")


def _measure_alone(run: Run, directory: Path) -> dict[str, list[int]]:
    rounds = run.rounds(_ALONE_ROUNDS)
    turns = make_turns((rounds + _WARM_UP) * _BLOCK)
    with (
        Memory.open(directory / "alone.sqlite3") as queue,
        _open_per_thread(directory / "alone-each.sqlite3") as each,
        open_writer(queue) as one,
        open_writer(each) as other,
    ):
        loops = (Loop(lambda at: one.append(turns[at])), Loop(lambda at: other.append(turns[at])))
        contestants = dict(zip(_ALONE, loops, strict=True))
        return interleave(contestants, rounds=rounds, block=_BLOCK, warm_up=_WARM_UP)


def _alone_lines(alone: dict[str, list[int]]) -> list[Line]:
    return lines_of(alone, _ALONE[1])


def _open_per_thread(path: Path) -> Memory:
    """A memory over `ConnectionPerThread`, in a file that the product has made."""
    Memory.open(path).close()
    return Memory(
        ConnectionPerThread(path),
        Config(url=str(path)),
        clock=SystemClock(),
        ids=SystemIds(),
        workspaces=SystemWorkspaces(),
    )
