"""SQLite's plans of the queries that read a history page by page."""

from __future__ import annotations

import pytest

from engrain.storage.sqlite.database import QUERIES
from engrain.testing.engines import SqliteMemoryEngine

PAGES = [
    "transcript.list_batches",
    "transcript.batch_of",
    "transcript.list_events",
    "transcript.list_sources",
    "episodes.list_session",
]


@pytest.mark.parametrize("query", PAGES)
def test_a_page_is_found_by_its_key_and_never_sorted(query: str) -> None:
    """By another index it would read the whole scope for every page."""
    engine = SqliteMemoryEngine()
    database = engine.open()
    try:
        statement, _ = QUERIES[query]
        count = max(number for number in range(1, 10) if f"?{number}" in statement)
        plan = engine.alter(
            f"EXPLAIN QUERY PLAN {statement}", **{str(at): 1 for at in range(1, count + 1)}
        )
        steps = [str(row[3]) for row in plan]
        assert "USING INTEGER PRIMARY KEY" in steps[0], steps
        assert not any("TEMP B-TREE" in step or step.startswith("SCAN") for step in steps), steps
    finally:
        database.close()
