"""A memory for what no engine can change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engrain import Memory


@pytest.fixture
def quick_memory(tmp_path: Path) -> Iterator[Memory]:
    """An empty memory in a file."""
    with Memory.open(tmp_path / "engrain.sqlite3") as opened:
        yield opened
