"""Processes that write to one SQLite file take turns, though each could keep it to itself.

Counted in turns and not in time, with room for a machine that does other things meanwhile. Without
the turnstile the first process is done when the last ones have hardly begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

from engrain.testing.contracts import racers
from engrain.testing.engines import SqliteFileEngine
from engrain.testing.races import RACERS, Racers
from storage.taking_turns import TURNS, prepare, write

__all__ = ["racers"]


def test_processes_share_the_database_fairly(racers: Racers, tmp_path: Path) -> None:
    engine = SqliteFileEngine(tmp_path / "engrain.sqlite3")
    with racers.on(engine) as race:
        race.ask_each(prepare)
        race.race(write)
        rows = engine.alter("SELECT batch_key >> 32 FROM batches ORDER BY recorded_at, batch_key")
    places: dict[int, list[int]] = {}
    for place, (session,) in enumerate(rows):
        places.setdefault(session, []).append(place)
    assert [len(mine) for mine in places.values()] == [TURNS] * RACERS
    first_end = min(mine[-1] for mine in places.values())
    written = [sum(place <= first_end for place in mine) for mine in places.values()]
    assert min(written) >= TURNS // 4, written
    assert median(waits(places)) >= RACERS // 2


def waits(places: dict[int, list[int]]) -> Iterator[int]:
    """How many turns of others came between each two of one process."""
    return (b - a - 1 for mine in places.values() for a, b in pairwise(mine))
