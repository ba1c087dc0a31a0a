"""LangGraph: SqliteSaver, whose checkpoints hold all messages so far."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver


class LanggraphGrowth:
    """`put` after each event that joins a history of `events`."""

    def __init__(self, path: str, turns: str, events: int) -> None:
        self._path = path
        self._saver = SqliteSaver(sqlite3.connect(path, check_same_thread=False))
        self._saver.setup()
        source = [item for turn in json.loads(Path(turns).read_text()) for item in turn]
        self._source = source
        self._messages: list[Any] = [source[at % len(source)] for at in range(events)]
        self._config: Any = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}
        self._step = 0

    def block(self, count: int) -> list[int]:
        taken = []
        for _ in range(count):
            self._messages.append(self._source[self._step % len(self._source)])
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"messages": self._messages}
            began = time.perf_counter_ns()
            self._config = self._saver.put(
                self._config, checkpoint, {"source": "loop", "step": self._step}, {}
            )
            taken.append(time.perf_counter_ns() - began)
            self._step += 1
        return taken

    def bytes_per_event(self) -> float:
        """Bytes in the database for each event that was put, once the log is folded away."""
        self._saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Path(self._path).stat().st_size / max(1, self._step)


class LanggraphReplay:
    """`get_tuple` of the newest checkpoint of a whole history."""

    def __init__(self, path: str, turns: str, events: int) -> None:
        growth = LanggraphGrowth(path, turns, events - 1)
        growth.block(1)
        self._saver = growth._saver
        self._events = events

    def block(self, count: int) -> list[int]:
        taken = []
        for _ in range(count):
            began = time.perf_counter_ns()
            found = self._saver.get_tuple({"configurable": {"thread_id": "bench"}})
            taken.append(time.perf_counter_ns() - began)
            assert found is not None
            assert len(found.checkpoint["channel_values"]["messages"]) == self._events
        return taken


CONTESTANTS = {"langgraph_growth": LanggraphGrowth, "langgraph_replay": LanggraphReplay}
