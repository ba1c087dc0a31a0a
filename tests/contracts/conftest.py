"""The three engines that every shipped contract suite runs on."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite("engrain.testing.contracts")

from engrain.testing.contracts import clock, held_race, race, racers, stores  # noqa: E402  (after the line above)
from engrain.testing.engines import (  # noqa: E402
    Engine,
    PostgresEngine,
    SqliteFileEngine,
    SqliteMemoryEngine,
)

__all__ = ["clock", "held_race", "race", "racers", "stores"]

_SHARED = ("sqlite-file", "postgresql")


@pytest.fixture(params=("sqlite-file", "sqlite-memory", "postgresql"))
def engine(request: pytest.FixtureRequest) -> Engine:
    """An empty database, on each engine in turn."""
    return _make(request)


@pytest.fixture(params=_SHARED)
def shared_engine(request: pytest.FixtureRequest) -> Engine:
    """An empty database that other processes can open, on each engine that has one."""
    return _make(request)


def _make(request: pytest.FixtureRequest) -> Engine:
    if request.param == "sqlite-memory":
        return SqliteMemoryEngine()
    if request.param == "postgresql":
        return PostgresEngine(request.getfixturevalue("fresh_postgres_url"))
    folder: Path = request.getfixturevalue("tmp_path")
    return SqliteFileEngine(folder / "engrain.sqlite3")
