"""What people see: width, colour and progress of a real terminal, and none of it elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from apps.conftest import EXAMPLE, ROOT, Command
from engrain.apps.cli.output import local_time
from engrain.apps.cli.progress import Bar

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
COLUMNS = 72


def on_a_terminal(
    *arguments: str | Path,
    term: str = "xterm-256color",
    columns: int = COLUMNS,
    **variables: str,
) -> str:
    """What a person sees whose terminal has that many columns; standard error goes there too."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "engrain", *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=kept | {"TERM": term} | variables,
    )
    os.close(theirs)
    seen = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    assert process.wait() == 0
    return seen.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the last writer has gone
        return b""


def test_tables_are_wrapped_to_the_terminal(imported: Command) -> None:
    (one, *_) = imported("sessions", "list", "--all", "--json").json["items"]
    imported("sessions", "title", one["id"], " ".join(f"word{n}" for n in range(40)))
    seen = COLOUR.sub("", on_a_terminal("sessions", "list", "--all"))
    assert max(map(len, seen.splitlines())) <= COLUMNS
    assert one["id"] in seen
    assert all(f"word{n}" in seen for n in range(0, 40, 7))


@pytest.mark.parametrize("columns", [20, 40, 60, 79, 80, 132])
def test_no_id_is_cut_and_no_column_lost_however_narrow(imported: Command, columns: int) -> None:
    items = imported("sessions", "list", "--all", "--json").json["items"]
    seen = COLOUR.sub("", on_a_terminal("sessions", "list", "--all", columns=columns))
    for one in items:
        assert one["id"] in seen
        assert str(one["event_count"]) in seen
        assert all(word in seen for word in one["title"].split())
    assert seen.count("UTC") + seen.count("WES") == len(items)
    if columns >= 36:
        assert max(map(len, seen.splitlines())) <= columns
    shown = COLOUR.sub("", on_a_terminal("sessions", "show", items[0]["id"], columns=columns))
    assert items[0]["id"] in shown


@pytest.mark.parametrize("columns", [40, 80])
def test_explained_recall_keeps_its_sources_whole(imported: Command, columns: int) -> None:
    question = ("recall", "database shop", "--budget", "300")
    seen = on_a_terminal(*question, "--explain", columns=columns)
    for item in imported(*question, "--json").json["items"]:
        assert item["episode"]["session_id"] in COLOUR.sub("", seen)


def test_list_is_a_table_at_eighty_columns(imported: Command) -> None:
    seen = COLOUR.sub("", on_a_terminal("sessions", "list", "--all", columns=80))
    assert seen.splitlines()[0].split() == ["Session", "Title", "Events", "Opened"]


def test_tables_in_a_pipe_keep_a_row_on_one_line(imported: Command) -> None:
    (one, *_) = imported("sessions", "list", "--all", "--json").json["items"]
    title = " ".join(f"word{n}" for n in range(40))
    imported("sessions", "title", one["id"], title)
    (row,) = [
        line for line in imported("sessions", "list", "--all").out.splitlines() if one["id"] in line
    ]
    assert title in row


def test_colour_is_for_a_terminal_that_did_not_refuse_it(imported: Command) -> None:
    command = ("sessions", "list", "--all")
    assert COLOUR.search(on_a_terminal(*command))
    assert not _coloured(on_a_terminal(*command, NO_COLOR="1"))
    assert not COLOUR.search(on_a_terminal(*command, term="dumb"))
    assert "\x1b" not in imported(*command).out
    assert "\x1b" not in imported("--help").out
    assert not COLOUR.search(on_a_terminal(*command, "--json"))


def _coloured(text: str) -> bool:
    """Bold is no colour; numbers from 30 on choose one."""
    codes = [int(code) for run in COLOUR.findall(text) for code in re.findall(r"\d+", run)]
    return any(code >= 30 for code in codes)


def bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *, is_quiet: bool = False, patience_s: float = 0
) -> str:
    """What is seen on standard error of work of four parts."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm-256color")
    with open(theirs, "w") as stream:  # noqa: PTH123  (a descriptor has no path)
        monkeypatch.setattr(sys, "stderr", stream)
        with Bar(is_quiet=is_quiet, patience_s=patience_s) as bar:
            for part in range(5):
                bar(part * 10**6, 4 * 10**6, "indexing" if part > 2 else "reading")
    monkeypatch.undo()
    seen = b"".join(iter(lambda: _read(ours), b"")).decode()
    os.close(ours)
    return seen


def test_progress_is_drawn_on_a_terminal_and_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = bar_on_a_terminal(monkeypatch)
    assert "importing" in seen and "indexing" in seen and "100%" in seen
    assert seen.endswith("\x1b[1A\x1b[2K") or seen.rstrip("\r\n").endswith("\x1b[2K")


def test_progress_waits_for_long_work_and_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bar_on_a_terminal(monkeypatch, patience_s=60) == ""
    assert bar_on_a_terminal(monkeypatch, is_quiet=True) == ""


def test_quick_work_draws_no_progress(home: Path) -> None:
    assert "importing" not in on_a_terminal("import", EXAMPLE)


def test_progress_is_for_people_alone(capfd: pytest.CaptureFixture[str]) -> None:
    with Bar(is_quiet=False, patience_s=0) as bar:
        bar(1, 2, "reading")
    assert capfd.readouterr() == ("", "")


def test_progress_appears_though_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm-256color")
    with open(theirs, "w") as stream:  # noqa: PTH123  (a descriptor has no path)
        monkeypatch.setattr(sys, "stderr", stream)
        with Bar(is_quiet=False, patience_s=0.01):
            seen = b""
            while b"importing" not in seen:
                seen += _read(ours)
        monkeypatch.undo()
    os.close(ours)


@pytest.mark.parametrize(("is_quiet", "said"), [(False, 1), (True, 0)])
def test_that_it_waits_is_said_once_without_a_terminal_too(
    is_quiet: bool, said: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with Bar(is_quiet=is_quiet) as bar:
        for _ in range(3):
            bar(1, 2, "waiting")
    assert capfd.readouterr().err == "waiting for another import of the same\n" * said


def test_times_are_local_and_name_their_zone(imported: Command) -> None:
    winter, summer = 1_767_225_600_000_000, 1_782_864_000_000_000
    script = f"from engrain.apps.cli.output import local_time as t; print(t({winter}), t({summer}))"
    zoned = subprocess.run(
        [sys.executable, "-c", script],
        env={"TZ": "WET0WEST,M3.5.0/1,M10.5.0"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert zoned.stdout == "2026-01-01 00:00 WET 2026-07-01 01:00 WEST\n"


@pytest.mark.parametrize(
    ("at_us", "shown"),
    [
        (None, "-"),
        (10**18, "time unknown"),
        (-(10**18), "time unknown"),
        (0, "1970-01-01"),
        (-62_135_596_800_000_000, "0001-01-01"),
        (253_402_300_799_999_999, "9999-12-31"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC0", "EAST-9", "WEST9"])
def test_any_time_can_be_shown(
    at_us: int | None, shown: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        said = local_time(at_us)
    finally:
        monkeypatch.undo()
        time.tzset()
    days = {shown, "1969-12-31"} if at_us == 0 else {shown}
    assert said.split(" ")[0] in {day.split(" ")[0] for day in days}
