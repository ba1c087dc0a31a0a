"""Time as integer UTC microseconds. Sequence orders, time informs."""

from __future__ import annotations

from typing import NewType, Protocol

Micros = NewType("Micros", int)


class Clock(Protocol):
    """Wall clock for what is recorded, steady clock for how long to wait."""

    def now_us(self) -> Micros: ...

    def steady_s(self) -> float: ...
