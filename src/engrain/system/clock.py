"""The machine's clocks."""

from __future__ import annotations

import time

from engrain.contracts.clock import Clock, Micros


class SystemClock(Clock):
    """Wall clock in UTC microseconds, and a steady one that never steps.

    The wall clock can be set back and ahead by anybody who administers the machine, and runs on
    while it sleeps. The steady one counts from an arbitrary moment and may stand still in sleep:
    good for how long to wait, never for what is stored.
    """

    def now_us(self) -> Micros:
        return Micros(time.time_ns() // 1_000)

    def steady_s(self) -> float:
        return time.monotonic()
