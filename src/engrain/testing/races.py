"""Six real processes on one database: what they acknowledge is counted against what is there.

A race is a function at the top of a module, so that a fresh process can find it by name. It gets
its `Racer` first. It answers with plain values, and with `refusal()` in place of an error that it
expects; anything else that it raises fails the race in the process that asked.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Barrier
from typing import Any, Concatenate, ParamSpec, TypeVar

from engrain.contracts.errors import EngrainError
from engrain.contracts.leases import SessionLease
from engrain.storage.postgres.database import QUERIES
from engrain.testing.clock import HeldClock
from engrain.testing.engines import Engine, Stores, open_stores

RACERS = 6
_ANSWER_WAIT_S = 120.0
_STOP_WAIT_S = 10.0

P = ParamSpec("P")
T = TypeVar("T")


class Racer:
    """One process of a race, with stores of its own and what it kept from one race to the next."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lease: SessionLease | None = None
        self._clock: HeldClock | None = None
        self._stores: Stores | None = None

    @property
    def stores(self) -> Stores:
        assert self._stores is not None, "the race has not been opened"
        return self._stores

    @property
    def clock(self) -> HeldClock:
        assert self._clock is not None, "the race runs under the engine's own time"
        return self._clock

    def open(self, engine: Engine, now_us: int | None) -> None:
        """Opens the database, under a clock held at `now_us` or under the engine's own time."""
        self._clock = None if now_us is None else HeldClock(now_us)
        self._stores = open_stores(engine, self._clock)

    def close(self) -> None:
        self.lease = None
        if self._stores is not None:
            self._stores.close()
            self._stores = None


Race = Callable[Concatenate[Racer, P], T]


def refusal(verb: Callable[[], object]) -> str:
    """The code of the error that `verb` raises; empty when it is done."""
    try:
        verb()
    except EngrainError as error:
        return error.code
    return ""


def plant(_: Racer, query: str, statement: str) -> str:
    """Replaces a statement of PostgreSQL in this process, to show what notices; the old one."""
    old, QUERIES[query] = QUERIES[query], statement
    return old


class Racers:
    """Processes that wait for races. Close them, or use `with`."""

    def __init__(self, count: int = RACERS) -> None:
        context = multiprocessing.get_context("spawn")
        self._gate = context.Barrier(count)  # lives as long as we do, or nobody finds it
        self._processes: list[SpawnProcess] = []
        self._lines: list[Connection[Any, Any]] = []
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(number, theirs, self._gate), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._lines.append(ours)

    @contextmanager
    def on(self, engine: Engine, *, now_us: int | None = None) -> Iterator[Racers]:
        """Every process opens `engine`, which must pickle, and closes it after the block."""
        self.race(Racer.open, engine, now_us)
        try:
            yield self
        finally:
            self.race(Racer.close)

    def race(self, body: Race[P, T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """Runs `body` in all processes at once; their answers in the order of their numbers."""
        for line in self._lines:
            line.send((body, args, kwargs, True))
        answers = [self._answer(number) for number in range(len(self._lines))]
        return [_unpack(answer) for answer in answers]

    def ask(self, number: int, body: Race[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `body` in one process alone."""
        self._lines[number].send((body, args, kwargs, False))
        answer: T = _unpack(self._answer(number))
        return answer

    def ask_each(self, body: Race[P, T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """Runs `body` in one process after the other."""
        return [self.ask(number, body, *args, **kwargs) for number in range(len(self._lines))]

    def _answer(self, number: int) -> Any:
        if not self._lines[number].poll(_ANSWER_WAIT_S):
            raise AssertionError(f"process {number} of the race gave no answer")
        return self._lines[number].recv()

    def close(self) -> None:
        """Ends the processes."""
        for line in self._lines:
            line.close()
        for process in self._processes:
            process.join(_STOP_WAIT_S)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()

    def __enter__(self) -> Racers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(number: int, line: Connection[Any, Any], gate: Barrier) -> None:
    racer = Racer(number)
    while True:
        try:
            body, args, kwargs, is_together = line.recv()
        except EOFError:
            racer.close()
            return
        try:
            if is_together:
                gate.wait(_ANSWER_WAIT_S)
            line.send((body(racer, *args, **kwargs), None))
        except Exception:  # noqa: BLE001  (shown by the process that asked)
            line.send((None, traceback.format_exc()))


def _unpack(answer: Any) -> Any:
    value, failure = answer
    if failure is not None:
        raise AssertionError(f"a process of the race failed:\n{failure}")
    return value
