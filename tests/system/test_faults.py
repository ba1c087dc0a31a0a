"""Fault points: where tests stop, fail, hold and record what the library does."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from engrain import Memory, Scope, Turn, Uncertain
from engrain.contracts.faults import reach
from engrain.services.sessions import SessionWriter
from engrain.testing.faults import Faults, killing_command

ANA = Scope(org="acme", user="ana")
TURN = Turn.said("I moved to Porto.", reply="Noted!")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory.open(tmp_path / "agent.sqlite3") as opened:
        yield opened


@pytest.fixture
def writer(memory: Memory) -> Iterator[SessionWriter]:
    with memory.sessions.lease(ANA, memory.sessions.start(ANA).id) as opened:
        yield opened


def test_points_are_recorded_in_their_order(writer: SessionWriter) -> None:
    with Faults() as faults:
        writer.append(TURN)
        writer.append(TURN)
    assert faults.reached == ("commit.before", "commit.after") * 2


def test_outside_a_block_nothing_is_recorded_and_nothing_happens() -> None:
    with Faults() as faults:
        pass
    reach("commit.before")
    assert faults.reached == ()


@pytest.mark.invariant("INV-13")
def test_a_commit_that_fails_is_uncertain_and_its_repeat_counts_once(
    memory: Memory, writer: SessionWriter
) -> None:
    with Faults() as faults:
        faults.fail("commit.before")
        with pytest.raises(Uncertain, match="OSError") as lost:
            writer.append(TURN)
    writer.append(TURN, operation_id=lost.value.operation_id)
    assert len(list(memory.sessions.iter_events(ANA, writer.session_id))) == len(TURN.events)


def test_without_an_error_of_its_own_a_failure_is_that_of_a_full_disk() -> None:
    with Faults() as faults:
        faults.fail("here")
        with pytest.raises(OSError) as failed:
            reach("here")
    assert failed.value.errno == errno.ENOSPC


def test_an_error_of_the_tests_own_is_raised_at_the_nth_time_alone() -> None:
    with Faults() as faults:
        faults.fail("here", KeyError("mine"), nth=2)
        reach("here")
        reach("elsewhere")
        with pytest.raises(KeyError, match="mine"):
            reach("here")
        reach("here")
    assert faults.reached == ("here", "elsewhere", "here", "here")


@pytest.mark.invariant("INV-07")
def test_a_thread_that_is_held_before_its_commit_has_shown_nothing(
    memory: Memory, writer: SessionWriter
) -> None:
    with Faults() as faults:
        held = faults.pause("commit.before")
        thread = Thread(target=writer.append, args=(TURN,))
        thread.start()
        held.wait()
        assert list(memory.sessions.iter_events(ANA, writer.session_id)) == []
        assert thread.is_alive()
        held.resume()
        thread.join()
    assert len(list(memory.sessions.iter_events(ANA, writer.session_id))) == len(TURN.events)


def test_the_end_of_the_block_frees_whom_it_holds(writer: SessionWriter) -> None:
    with Faults() as faults:
        held = faults.pause("commit.before")
        thread = Thread(target=writer.append, args=(TURN,))
        thread.start()
        held.wait()
    thread.join()


def test_a_plan_for_a_point_that_is_never_reached_fails_the_test() -> None:
    with pytest.raises(AssertionError, match=r"never reached: comit.before \(1\)"), Faults() as it:
        it.fail("comit.before")
        reach("commit.before")


def test_a_plan_for_a_moment_that_is_past_is_refused() -> None:
    with Faults() as faults:
        reach("here")
        with pytest.raises(AssertionError, match="already"):
            faults.fail("here")


def test_two_blocks_at_once_are_refused_and_the_first_stays_armed() -> None:
    with Faults() as faults:
        with pytest.raises(AssertionError, match="armed already"), Faults():
            pass
        reach("here")
    assert faults.reached == ("here",)


def test_an_error_on_its_way_out_is_not_hidden_and_disarms() -> None:
    with pytest.raises(KeyError), Faults() as faults:
        faults.fail("never")
        raise KeyError
    reach("never")


def test_a_process_dies_at_its_point_and_leaves_what_was_durable(tmp_path: Path) -> None:
    database = tmp_path / "home" / "memory" / "engrain.sqlite3"
    arguments = ["sessions", "list", "--all", "--home", str(tmp_path / "home")]
    killed = _run(killing_command("create.publish", 1, "engrain", *arguments))
    assert killed.returncode == -signal.SIGKILL
    assert not database.exists()
    finished = _run([sys.executable, "-m", "engrain", *arguments])
    assert finished.returncode == 0, finished.stderr
    assert database.exists()


def test_a_program_that_never_comes_to_its_point_ends_as_it_always_does(tmp_path: Path) -> None:
    command = killing_command("create.publish", 9, "engrain", "sessions", "list", "--all")
    finished = _run([*command, "--home", str(tmp_path / "home")])
    assert finished.returncode == 0, finished.stderr


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ENGRAIN_")}
    return subprocess.run(command, capture_output=True, text=True, env=clean, timeout=60)
