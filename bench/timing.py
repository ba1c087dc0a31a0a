"""Interleaved timing, so that a busy machine slows every contestant alike.

Contestants take turns in short blocks (A B C, B C A, …), each operation is timed by itself, and
what is reported are ratios of medians. The first rounds warm up and are thrown away.
"""

from __future__ import annotations

import gc
import math
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

US = 1_000
MS = 1_000_000
SLOW_SYNC_US = 1_000
"""Above this median of a bare fdatasync, latencies say more about the disk than about the code."""


class Contestant(Protocol):
    """One way to do the work."""

    def block(self, count: int) -> list[int]:
        """Does it `count` times; nanoseconds of each."""
        ...


class Loop:
    """A contestant in this process: `step` is called with 0, 1, 2, … and timed."""

    def __init__(self, step: Callable[[int], object]) -> None:
        self._step = step
        self._next = 0

    def block(self, count: int) -> list[int]:
        first, self._next = self._next, self._next + count
        step, clock = self._step, time.perf_counter_ns
        taken = []
        with quiet():
            for number in range(first, first + count):
                began = clock()
                made = step(number)
                taken.append(clock() - began)
                del made  # what it made is thrown away on nobody's time
        return taken


@contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection inside; what lies about is collected before."""
    was_enabled = gc.isenabled()
    gc.collect(0)
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def interleave(
    contestants: Mapping[str, Contestant], *, rounds: int, block: int, warm_up: int = 2
) -> dict[str, list[int]]:
    """Nanoseconds of every timed operation, by contestant."""
    taken: dict[str, list[int]] = {name: [] for name in contestants}
    order = deque(contestants.items())
    for number in range(warm_up + rounds):
        for name, contestant in order:
            spent = contestant.block(block)
            if number >= warm_up:
                taken[name] += spent
        order.rotate(-1)
    return taken


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    return percentile(values, 0.5)


class SyncProbe:
    """A contestant that overwrites one page of a file and calls fdatasync: the disk by itself."""

    _PAGES = 256

    def __init__(self, directory: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  (lives as long as the probe)
        self._file.write(bytes(4_096 * self._PAGES))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._loop = Loop(self._sync)

    def _sync(self, number: int) -> None:
        descriptor = self._file.fileno()
        os.pwrite(descriptor, number.to_bytes(8, "big") * 512, 4_096 * (number % self._PAGES))
        os.fdatasync(descriptor)

    def block(self, count: int) -> list[int]:
        return self._loop.block(count)
