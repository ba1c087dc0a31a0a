"""Processes that write to one SQLite file take turns, though each could keep it to itself.

Counted in turns and not in time, so that a busy machine changes little.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

from engrain.testing.contracts import racers
from engrain.testing.engines import SqliteFileEngine
from engrain.testing.races import RACERS, Racers
from storage.taking_turns import prepare, write

__all__ = ["racers"]

MOST_TO_LEAST = 2
PASSED_MAX = 6 * RACERS
"""How many turns of others may come between two of one process."""


def test_processes_share_the_database_fairly(racers: Racers, tmp_path: Path) -> None:
    engine = SqliteFileEngine(tmp_path / "engrain.sqlite3")
    with racers.on(engine) as race:
        race.ask_each(prepare)
        race.race(write)
        rows = engine.alter("SELECT batch_key >> 32 FROM batches ORDER BY recorded_at, batch_key")
    order = while_all_write([session for (session,) in rows])
    turns = Counter(order)
    assert len(turns) == RACERS
    assert max(turns.values()) <= MOST_TO_LEAST * min(turns.values()), turns
    assert longest_wait(order) <= PASSED_MAX


def while_all_write(order: list[int]) -> list[int]:
    """The turns from when the last process has begun until the first has ended."""
    begins = {session: order.index(session) for session in set(order)}
    ends = {session: len(order) - order[::-1].index(session) for session in set(order)}
    return order[max(begins.values()) : min(ends.values())]


def longest_wait(order: list[int]) -> int:
    """The most turns of others between two of one process."""
    places = {session: [at for at, one in enumerate(order) if one == session] for session in order}
    return max(after - before - 1 for mine in places.values() for before, after in pairwise(mine))
