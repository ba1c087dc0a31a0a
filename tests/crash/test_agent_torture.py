"""Agents that are killed hundreds of times, on both engines, and mutants that are caught at it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crash.agent_mutants import MUTANTS

TESTS = Path(__file__).parents[1]
KILLS = {"sqlite": 400, "postgresql": 100}
MUTANT_KILLS = 60
_WAIT_S = 400


def torture(url: str, kills: int, mutant: str = "") -> dict[str, Any]:
    command = [sys.executable, "-m", "crash.agent_torture", "--kills", str(kills), "--url", url]
    command += ["--mutant", mutant] if mutant else ["--without-mutants"]
    ran = subprocess.run(
        command, cwd=TESTS, capture_output=True, timeout=_WAIT_S, check=False, env=dict(os.environ)
    )
    assert ran.returncode in (0, 1), ran.stderr.decode()
    found: dict[str, Any] = msgspec.json.decode(ran.stdout.splitlines()[0])
    return found


@pytest.mark.invariant("INV-29")
@pytest.mark.invariant("INV-30")
@pytest.mark.invariant("INV-31")
@pytest.mark.parametrize("engine", KILLS)
def test_killed_agents_lose_no_answer_run_no_tool_twice_and_deny_no_effect(
    engine: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("fresh_postgres_url") if engine == "postgresql" else ""
    found = torture(url, KILLS[engine])
    assert found["kills"] >= KILLS[engine]
    assert [found[name] for name in ("lost", "rerun", "denied", "broken")] == [[], [], [], []]
    assert found["answers"] > KILLS[engine] // 4, "turns come to their end"
    assert found["effects"] > KILLS[engine], "tools run"


@pytest.mark.parametrize("mutant", MUTANTS)
def test_planted_fault_is_found(mutant: str) -> None:
    found = torture("", MUTANT_KILLS, mutant)
    expected = "rerun" if mutant == "run started calls again" else "denied"
    assert found[expected], mutant
