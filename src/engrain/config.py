"""How a memory is opened, as one frozen record."""

from __future__ import annotations

import msgspec


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Where the memory lives and how many calls may wait at the async door."""

    url: str
    async_workers: int = 8

    def __repr__(self) -> str:
        return "Config(…)"  # the URL may hold a password
