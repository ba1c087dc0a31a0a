"""A memory in this process, and places for files to import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engrain import Memory


@pytest.fixture
def quick_memory() -> Iterator[Memory]:
    """An empty memory in this process, for what no engine can change."""
    with Memory.open(":memory:") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where files to import are written."""
    place = tmp_path / "files"
    place.mkdir()
    return place
