"""Processes that write and are killed: what they acknowledged is there, each of it once.

A killed process loses nothing that it gave to the system, so that a commit without its sync passes
here. What is synced, and how often, `tests/storage/test_sync_count.py` counts.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from crash.fleet import KILL, Fleet, Victim
from crash.promises import Told, broken_promises
from crash.writing import LEASE_TTL_US, engine_of
from engrain.system.clock import SystemClock
from engrain.testing.clock import HeldClock
from engrain.testing.contracts import begin
from engrain.testing.engines import Engine, PostgresEngine, open_stores

PROCESSES = 3
SESSIONS = 4
KILLS = 20
DEATHS_AT_POINTS = 2
POINTS = ("commit.before", "commit.after")
PROMPT_S = 0.004
"""About what a few turns take, so that kills fall anywhere in the next one."""
WAIT_S = 30.0
_POLL_S = 0.01


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("fresh_postgres_url"))
    folder: Path = request.getfixturevalue("tmp_path")
    return str(folder / "engrain.sqlite3")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return str(tmp_path / "engrain.sqlite3")


def started(url: str, count: int) -> list[UUID]:
    """Ids of new sessions."""
    with open_stores(engine_of(url)) as stores:
        return [begin(stores).id for _ in range(count)]


def broken(url: str, told: Told, sessions: list[UUID]) -> list[str]:
    """What the database, opened anew after every lease has expired, does not keep."""
    engine = engine_of(url)
    await_the_dead(engine)
    clock = HeldClock(SystemClock().now_us() + LEASE_TTL_US)
    with open_stores(engine, clock) as stores:
        return broken_promises(stores, told, sessions)


def await_the_dead(engine: Engine) -> None:
    """A server may still run what a client asked for before it was killed."""
    if not isinstance(engine, PostgresEngine):
        assert engine.alter("PRAGMA integrity_check") == [("ok",)]
        return
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    for _ in range(int(WAIT_S / _POLL_S)):
        if engine.alter(others) == [(0,)]:
            return
        Event().wait(_POLL_S)
    raise AssertionError("the server still serves the dead")


class Turns:
    """Counts acknowledged turns: true at the `count`-th."""

    def __init__(self, count: int, process: Victim | None = None) -> None:
        self._left = count
        self._process = process

    def __call__(self, victim: Victim, line: list[Any]) -> bool:
        self._left -= line[0] == "done" and self._process in (None, victim)
        return self._left <= 0


@pytest.mark.invariant("INV-07")
@pytest.mark.invariant("INV-13")
@pytest.mark.invariant("INV-14")
def test_acknowledged_turns_survive_kills_at_random_moments(url: str) -> None:
    moments = random.Random(5)
    sessions = started(url, SESSIONS)
    with Fleet(url, sessions) as fleet:
        for _ in range(PROCESSES):
            fleet.start()
        while not is_enough(fleet.deaths):
            writing = fleet.read_until(Turns(moments.randint(1, 25)))
            if writing is not None:
                Event().wait(moments.uniform(0, PROMPT_S))
                fleet.kill(writing)
            while len(fleet.alive) < PROCESSES:
                point = moments.choice([None, *POINTS])
                fleet.start(dies_at=point and (point, moments.randint(1, 12)))
        fleet.kill_all()
    assert broken(url, fleet.told, sessions) == []
    assert all(len(fleet.told.done[str(one)]) > KILLS for one in sessions)
    assert all(len(fleet.told.held[str(one)]) > 1 for one in sessions), "leases were taken over"


def is_enough(deaths: list[str]) -> bool:
    died = Counter(deaths)
    return died[KILL] >= KILLS and all(died[point] >= DEATHS_AT_POINTS for point in POINTS)
