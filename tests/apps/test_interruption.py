"""An import that is stopped at any moment and run again leaves everything exactly once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from apps.conftest import Command, Ran, in_a_process
from engrain import Memory, Scope
from engrain.contracts import faults

INTERRUPTED = Path(__file__).with_name("interrupted.py")
ANA = Scope(org="local", user="ana")
SESSIONS, TURNS = 6, 10
KILLED = -9


@pytest.fixture(params=["sqlite", "postgresql"])
def db(request: pytest.FixtureRequest, home: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("fresh_postgres_url"))
    return str(home.parent / "memory.sqlite3")


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """Conversations of several turns, a question and an answer each."""
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([_conversation(number) for number in range(SESSIONS)]))
    return path


def _conversation(number: int) -> dict[str, Any]:
    messages = [
        {
            "uuid": f"c{number}-m{at}",
            "text": f"conversation {number}, message {at}: the kiln of pot {number * 100 + at}",
            "sender": "human" if at % 2 == 0 else "assistant",
        }
        for at in range(2 * TURNS)
    ]
    return {"uuid": f"c{number}", "name": f"talk {number}", "chat_messages": messages}


def import_until(number: str, count: int, export: Path, db: str) -> Ran:
    return in_a_process(INTERRUPTED, number, str(count), "import", export, "--db", db, "--json")


def contents(url: str) -> dict[str, Any]:
    """All that the scope holds, without what differs from run to run; every chain verified."""
    with Memory.open(url) as memory:
        sessions = memory.sessions.list(ANA, limit=1000).items
        events = {
            session.title: [
                (stored.sequence, stored.event.source_id, stored.event.text)
                for stored in memory.sessions.iter_events(ANA, session.id)
            ]
            for session in sessions
        }
        verified = [memory.sessions.verify(ANA, session.id).event_count for session in sessions]
        titles = {session.id: session.title for session in sessions}
        episodes = [
            (titles[one.session_id], one.number, one.first_sequence, one.text)
            for one in memory.episodes.list(ANA, limit=1000).items
        ]
        return {
            "sessions": sorted(str(session.title) for session in sessions),
            "events": events,
            "verified": sorted(verified),
            "episodes": sorted(episodes, key=str),
            "found": len(memory.episodes.search(ANA, "kiln", limit=200)),
        }


@pytest.fixture
def undisturbed(export: Path, tmp_path: Path) -> dict[str, Any]:
    url = str(tmp_path / "undisturbed.sqlite3")
    assert import_until("SIGKILL", 0, export, url).code == 0
    return contents(url)


def assert_whole(found: dict[str, Any], undisturbed: dict[str, Any]) -> None:
    assert len(found["sessions"]) == SESSIONS
    assert found["verified"] == [2 * TURNS] * SESSIONS
    assert len(found["episodes"]) == 2 * TURNS * SESSIONS
    assert found == undisturbed


@pytest.mark.invariant("INV-16")
def test_killed_import_run_again_leaves_everything_exactly_once(
    db: str, export: Path, undisturbed: dict[str, Any]
) -> None:
    before_commit_of_first_turn, after_a_turn, later = 5, 24, 71
    for count in (before_commit_of_first_turn, after_a_turn, later):
        assert import_until("SIGKILL", count, export, db).code == KILLED
    assert len(contents(db)["events"]) < SESSIONS
    last = import_until("SIGKILL", 0, export, db)
    assert last.code == 0
    assert last.json["events_new"] + last.json["events_known"] == 2 * TURNS * SESSIONS
    assert_whole(contents(db), undisturbed)
    again = import_until("SIGKILL", 0, export, db).json
    assert (again["sessions_new"], again["events_new"], again["episodes_new"]) == (0, 0, 0)
    assert_whole(contents(db), undisturbed)


@pytest.mark.invariant("INV-16")
def test_import_killed_among_episodes_goes_on_there(
    db: str, export: Path, undisturbed: dict[str, Any]
) -> None:
    commits = SESSIONS * (1 + 1 + TURNS + 1)  # each is started, leased, filled and released
    count = 2 * (commits + SESSIONS // 2)
    assert import_until("SIGKILL", count, export, db).code == KILLED
    partly = contents(db)
    assert partly["verified"] == [2 * TURNS] * SESSIONS
    assert 0 < len(partly["episodes"]) < len(undisturbed["episodes"])
    assert import_until("SIGKILL", 0, export, db).code == 0
    assert_whole(contents(db), undisturbed)


@pytest.mark.parametrize("count", [14, 37])
def test_ctrl_c_keeps_what_was_done_and_says_so(
    db: str, export: Path, undisturbed: dict[str, Any], count: int
) -> None:
    stopped = import_until("SIGINT", count, export, db)
    assert (stopped.code, stopped.out, stopped.error["code"]) == (130, "", "interrupted")
    report = stopped.error["report"]
    found = contents(db)
    kept = sum(len(events) for events in found["events"].values())
    assert report["sessions_new"] == len(found["sessions"])
    assert 0 <= kept - report["events_new"] <= 2  # the turn that became durable as it stopped
    assert f"{report['events_new']:,} new events are kept" in stopped.error["message"]
    again = import_until("SIGINT", 0, export, db)
    assert again.json["events_known"] == kept
    assert_whole(contents(db), undisturbed)


@contextmanager
def lost_from(at: int, error: Exception) -> Iterator[None]:
    """From the `at`-th commit on nothing becomes durable any more."""
    seen: list[str] = []

    def hook(name: str) -> None:
        seen.append(name)
        if seen.count("commit.before") >= at and name == "commit.before":
            raise error

    faults.arm(hook)
    try:
        yield
    finally:
        faults.arm(None)


@pytest.mark.invariant("INV-16")
def test_import_whose_database_fails_says_why_what_is_kept_and_that_it_can_be_repeated(
    db: str, export: Path, undisturbed: dict[str, Any], engrain: Command
) -> None:
    is_sqlite = "://" not in db
    error = apsw.FullError("x") if is_sqlite else psycopg.OperationalError("x")
    why = "the disk is full" if is_sqlite else "OperationalError"
    with lost_from(22, error):
        stopped = engrain("import", export, "--db", db, "--json")
    assert (stopped.code, stopped.out, stopped.error["code"]) == (4, "", "uncertain")
    report = stopped.error["report"]
    assert report["events_new"] > 0
    assert stopped.error["message"] == (
        f"the commit was not acknowledged ({why}); "
        f"{report['sessions_new']:,} new sessions and {report['events_new']:,} new events are "
        "kept; the same command again is safe and goes on from there"
    )
    assert engrain("import", export, "--db", db).code == 0
    assert_whole(contents(db), undisturbed)


def test_import_that_cannot_begin_speaks_of_nothing_kept(engrain: Command) -> None:
    ran = engrain("import", "nowhere.json")
    assert "kept" not in ran.err


def test_reader_that_goes_away_ends_the_command_quietly(imported: Command) -> None:
    (session, *_) = imported("sessions", "list", "--all", "--json").json["items"]
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "engrain", "sessions", "show", session["id"]]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="writes to a device that is full")
@pytest.mark.parametrize(
    "arguments", ["sessions list --all", "recall database --json", "--help", "completion bash"]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_has_no_room_is_a_failure_that_names_it(
    imported: Command, arguments: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = f"exec '{sys.executable}' -m engrain {arguments} >/dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        (">&-", "sessions list --all", 0),
        (">&-", "recall database --json", 0),
        (">&-", "--help", 0),
        (">&-", "nosuch", 2),
        ("2>&-", "nosuch", 2),
        ("<&- >&- 2>&-", "recall database --explain", 0),
        ("<&- >&- 2>&-", "sessions show 7", 2),
    ],
)
def test_stream_that_was_closed_before_the_start_is_no_failure(
    imported: Command, closed: str, arguments: str, code: int
) -> None:
    command = f"exec '{sys.executable}' -m engrain {arguments} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr
