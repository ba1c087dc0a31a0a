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

from crash.fleet import Fleet, Victim
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
    assert all(fleet.told.done[str(one)] for one in sessions)
    assert sum(map(len, fleet.told.done.values())) > 2 * KILLS
    assert sum(map(len, fleet.told.held.values())) > KILLS // 2, "leases are taken over"


def is_enough(deaths: list[str]) -> bool:
    died = Counter(deaths)
    return len(deaths) >= KILLS and all(died[point] >= DEATHS_AT_POINTS for point in POINTS)


# A writer that slept


@pytest.mark.invariant("INV-10")
def test_writer_that_slept_through_a_takeover_is_refused(url: str) -> None:
    sessions = started(url, 1)
    with Fleet(url, sessions) as fleet:
        assert wake_after_takeover(fleet) == "overtaken"
        fleet.kill_all()
    assert broken(url, fleet.told, sessions) == []


@pytest.mark.invariant("INV-10")
def test_dropped_lease_check_would_be_found(url: str) -> None:
    sessions = started(url, 1)
    with Fleet(url, sessions) as fleet:
        assert wake_after_takeover(fleet, mutant="write under a lost lease") == "done"
        fleet.kill_all()
    assert "written under a lease that was overtaken" in broken(url, fleet.told, sessions)[0]


def is_asleep(_: Victim, line: list[Any]) -> bool:
    return bool(line[0] == "asleep")


def wake_after_takeover(fleet: Fleet, mutant: str = "") -> str:
    """What a writer tells first when it wakes, after another has gone on with its session.

    The other sleeps by then: a mutant that has to read again what was written meanwhile would never
    catch up with one that goes on.
    """
    words: list[str] = []
    sleeper = fleet.start(sleeps_after=5, mutant=mutant)
    assert fleet.read_until(is_asleep) is sleeper
    other = fleet.start(sleeps_after=3)
    assert fleet.read_until(is_asleep) is other
    sleeper.wake()

    def is_telling(victim: Victim, line: list[Any]) -> bool:
        if victim is sleeper and line[0] != "asked":
            words.append(line[0])
        return bool(words)

    assert fleet.read_until(is_telling) is sleeper
    return words[0]


# Planted faults


@pytest.mark.parametrize(
    ("mutant", "dies_at", "found"),
    [
        ("", ("commit.before", 7), ""),
        ("", ("commit.after", 7), ""),
        ("acknowledge before commit", None, "was acknowledged and is lost"),
        ("repeat under a new id", ("commit.after", 7), "is there 2 times"),
        ("commit by halves", ("commit.before", 7), "torn turn"),
    ],
)
def test_planted_fault_is_found_after_a_kill_and_none_without_it(
    sqlite_url: str, mutant: str, dies_at: tuple[str, int] | None, found: str
) -> None:
    sessions = started(sqlite_url, 1)
    with Fleet(sqlite_url, sessions) as fleet:
        first = fleet.start(mutant=mutant, dies_at=dies_at, sleeps_after=0 if dies_at else 7)
        if fleet.read_until(is_asleep):
            fleet.kill(first)
        heir = fleet.start(mutant=mutant)
        assert fleet.read_until(Turns(3)) is heir
        fleet.kill(heir)
    faults = broken(sqlite_url, fleet.told, sessions)
    assert any(found in fault for fault in faults) if found else faults == []
