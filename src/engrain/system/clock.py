"""The machine's clocks."""

from __future__ import annotations

import time

from engrain.contracts.clock import Micros


class SystemClock:
    """Wall clock in UTC microseconds, and a steady one that never steps."""

    def now_us(self) -> Micros:
        return Micros(time.time_ns() // 1_000)

    def steady_s(self) -> float:
        return time.monotonic()
