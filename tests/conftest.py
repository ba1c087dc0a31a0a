"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engrain import Memory
from postgres_fixture import fresh_postgres_url, postgres_url

__all__ = ["fresh_postgres_url", "postgres_url"]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty database may be opened, by several processes too."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("fresh_postgres_url"))
    return str(tmp_path / "engrain.sqlite3")


@pytest.fixture
def memory(url: str) -> Iterator[Memory]:
    """An empty memory of each engine."""
    with Memory.open(url) as opened:
        yield opened
