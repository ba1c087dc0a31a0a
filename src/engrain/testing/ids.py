"""Ids and secrets that follow from a seed, so that two runs can be compared word for word."""

from __future__ import annotations

from hashlib import sha256
from threading import Lock
from uuid import UUID

from engrain.contracts.clock import Clock

_UUID7_RANDOM = 2**74 - 1


class SeededIds:
    """The same seed, clock and calls give the same ids. Never for anything but tests."""

    def __init__(self, seed: str, clock: Clock) -> None:
        self._seed = seed
        self._clock = clock
        self._drawn = 0
        self._lock = Lock()

    def uuid7(self) -> UUID:
        """As RFC 9562 lays it out, with the clock's milliseconds."""
        drawn = int.from_bytes(self.random_bytes(10), "big") & _UUID7_RANDOM
        high, low = drawn >> 62, drawn & (2**62 - 1)
        milliseconds = self._clock.now_us() // 1_000
        return UUID(int=milliseconds << 80 | 7 << 76 | high << 64 | 2 << 62 | low)

    def random_bytes(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            with self._lock:
                self._drawn += 1
                found += sha256(f"{self._seed} {self._drawn}".encode()).digest()
        return found[:count]

    def scope_key(self) -> int:
        return int.from_bytes(self.random_bytes(8), "big") >> 1 or 1
