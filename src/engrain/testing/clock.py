"""A clock that moves only when a test says so."""

from __future__ import annotations

from threading import Lock

from engrain.contracts.clock import Clock, Micros


class HeldClock(Clock):
    """Stands still at `now_us`, in UTC microseconds, until it is moved. Safe from many threads."""

    def __init__(self, now_us: int) -> None:
        self._lock = Lock()
        self._now_us = now_us
        self._steady_us = 0

    def now_us(self) -> Micros:
        return Micros(self._now_us)

    def steady_s(self) -> float:
        return self._steady_us / 1_000_000

    def advance(self, us: int) -> None:
        """Lets `us` microseconds pass on both clocks."""
        assert us >= 0, "time that passes goes forward; step_back sets the wall clock back"
        with self._lock:
            self._now_us += us
            self._steady_us += us

    def step_ahead(self, us: int) -> None:
        """Sets the wall clock ahead, as after a sleep; the steady clock does not notice."""
        with self._lock:
            self._now_us += us

    def step_back(self, us: int) -> None:
        """Sets the wall clock back, as an operator can; the steady clock does not notice."""
        with self._lock:
            self._now_us -= us
