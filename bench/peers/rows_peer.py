"""The floor of replay: rows by APSW, JSON by orjson, dictionaries out."""

from __future__ import annotations

import time

import apsw
import orjson


class OrjsonReplay:
    """Reads every payload of a bare database into a list of dictionaries."""

    def __init__(self, path: str, events: int) -> None:
        self._connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        self._events = events

    def block(self, count: int) -> list[int]:
        taken = []
        for _ in range(count):
            began = time.perf_counter_ns()
            rows = self._connection.execute("SELECT payload FROM events ORDER BY event_key")
            found = [orjson.loads(payload) for (payload,) in rows]
            taken.append(time.perf_counter_ns() - began)
            assert len(found) == self._events
            del found
        return taken


CONTESTANTS = {"orjson_replay": OrjsonReplay}
