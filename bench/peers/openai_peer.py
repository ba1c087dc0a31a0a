"""OpenAI Agents SDK: SQLiteSession, as its documentation shows it."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from agents import SQLiteSession

Items = list[dict[str, Any]]


class OpenaiTurns:
    """`add_items` of one turn each."""

    def __init__(self, path: str, turns: str) -> None:
        self._session = SQLiteSession("bench", path)
        self._turns: list[Items] = json.loads(Path(turns).read_text())
        self._next = 0
        self._loop = asyncio.new_event_loop()  # one for all blocks, as an agent has one

    def block(self, count: int) -> list[int]:
        return self._loop.run_until_complete(self._append(count))

    async def _append(self, count: int) -> list[int]:
        taken = []
        for _ in range(count):
            items = self._turns[self._next % len(self._turns)]
            self._next += 1
            began = time.perf_counter_ns()
            await self._session.add_items(items)  # type: ignore[arg-type]
            taken.append(time.perf_counter_ns() - began)
        return taken


class OpenaiReplay(OpenaiTurns):
    """`get_items` of a whole history."""

    def __init__(self, path: str, turns: str) -> None:
        super().__init__(path, turns)
        super().block(len(self._turns))

    def block(self, count: int) -> list[int]:
        return self._loop.run_until_complete(self._replay(count))

    async def _replay(self, count: int) -> list[int]:
        taken = []
        for _ in range(count):
            began = time.perf_counter_ns()
            items = await self._session.get_items()
            taken.append(time.perf_counter_ns() - began)
            assert len(items) == sum(map(len, self._turns))
            del items
        return taken


CONTESTANTS = {"openai_turns": OpenaiTurns, "openai_replay": OpenaiReplay}
