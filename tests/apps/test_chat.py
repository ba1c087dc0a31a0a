"""`engrain chat` against a server on loopback: one turn from the command line, and a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from apps.scripted_server import Reply, ScriptedServer

Command = Callable[..., Any]
WAIT_S = 30.0


@pytest.fixture
def told(engrain: Command) -> Iterator[Callable[..., ScriptedServer]]:
    """Starts a server with replies, and adds it as the only model."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(*replies: Reply) -> ScriptedServer:
            server = stack.enter_context(ScriptedServer(list(replies)).serving())
            words = ("--provider", "openai", "--model", "scripted", "--endpoint", server.url)
            assert engrain("models", "add", "local", *words).code == 0
            return server

        yield start


def lines(ran: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.out.splitlines()]


def test_one_turn_as_json_lines(engrain: Command, told: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("Porto")
    server = told([("1", "read_file", {"path": "notes.md"})], "It says Porto.")
    ran = engrain("chat", "what does notes.md say?", "--json")
    assert (ran.code, ran.err) == (0, "")
    shown = lines(ran)
    events = [one["event"] for one in shown if one["type"] == "event"]
    assert [one["kind"] for one in events] == [
        "tool_call",
        "tool_result",
        "audit",
        "assistant_message",
    ]
    assert events[1]["text"] == "Porto"
    assert (
        "".join(one["text"] for one in shown if one["type"] == "text").strip() == "It says Porto."
    )
    assert (shown[-1]["type"], shown[-1]["text"].strip()) == ("result", "It says Porto.")
    names = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
    assert names == [
        "read_file",
        "list_directory",
        "write_file",
        "edit_file",
        "find_files",
        "grep",
        "shell",
    ]


def test_one_turn_in_words_from_standard_input(
    engrain: Command, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told("Hello \x1b[31myou")
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi"))
    ran = engrain("chat")
    assert ran.code == 0
    assert ran.out.startswith("Hello ")
    assert "\x1b" not in ran.out


def test_nobody_to_ask_means_no(engrain: Command, told: Any, tmp_path: Path) -> None:
    told([("1", "shell", {"command": "touch made"})], "Not allowed.")
    ran = engrain("chat", "make it", "--json")
    results = [
        one["event"] for one in lines(ran) if one.get("event", {}).get("kind") == "tool_result"
    ]
    assert results[0]["status"] == "not_executed"
    assert not (tmp_path / "made").exists()


def test_a_session_is_resumed_with_its_history(engrain: Command, told: Any) -> None:
    server = told("One.", "Two.")
    assert engrain("chat", "first").code == 0
    assert engrain("chat", "second", "--resume", "recent").code == 0
    said = [one["content"] for one in server.requests[1]["messages"] if one["role"] != "system"]
    assert [str(one).strip() for one in said] == ["first", "One.", "second"]
    (session,) = engrain("sessions", "list", "--json").json["items"]
    assert (session["title"], session["event_count"]) == ("first", 6)
    assert engrain("chat", "x", "--resume", session["id"], "--model", "none").code == 1


def test_the_memory_s_own_files_are_out_of_reach(
    engrain: Command, told: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told([("1", "read_file", {"path": "engrain.sqlite3"})], "I may not.")
    engrain("sessions", "start")
    monkeypatch.chdir(home / "memory")
    ran = engrain("chat", "read your own memory", "--json")
    results = [
        one["event"] for one in lines(ran) if one.get("event", {}).get("kind") == "tool_result"
    ]
    assert (results[0]["status"], "database" in results[0]["text"]) == ("failed", True)


def test_a_model_that_a_chat_is_bound_to_stays_and_another_goes_on_in_a_fork(
    engrain: Command, told: Any
) -> None:
    server = told("One.", "Two.")
    assert engrain("chat", "first").code == 0
    assert engrain("models", "remove", "local", "--json").error["code"] == "model_in_use"
    (session,) = engrain("sessions", "list", "--json").json["items"]
    words = ("--provider", "openai", "--model", "scripted", "--endpoint", server.url)
    assert engrain("models", "add", "other", *words).code == 0
    refused = engrain("chat", "x", "--model", "other", "--resume", session["id"], "--json")
    assert refused.error["code"] == "snapshot_mismatch"
    assert "configuration.model.name" in refused.error["message"]
    assert engrain("chat", "second", "--model", "other", "--fork", session["id"]).code == 0
    said = [one["content"] for one in server.requests[1]["messages"] if one["role"] != "system"]
    assert [str(one).strip() for one in said] == ["first", "One.", "second"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--resume", "yesterday"), 2),
        (("--resume", "recent"), 1),
        (("--resume", "0198c0de-0000-7000-8000-000000000000"), 1),
        (("--model", "none"), 1),
        (("--model", "nowhere:none"), 2),
    ],
)
def test_what_cannot_be_is_said(
    engrain: Command, told: Any, words: tuple[str, ...], code: int
) -> None:
    told()
    ran = engrain("chat", "hi", *words, "--json")
    assert (ran.code, ran.out) == (code, "")
    assert ran.error["message"]


def test_without_a_model_it_says_how_to_have_one(engrain: Command) -> None:
    ran = engrain("chat", "hi")
    assert ran.code == 2
    assert "--model" in ran.err


# In a terminal


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until
        select.select([], [], [], 0.02)


class Terminal:
    """`engrain chat` at a terminal of its own."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process
        self.seen = ""

    def say(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def wait_for(self, text: str) -> str:
        """What was shown up to it."""
        until = time.monotonic() + WAIT_S
        while text not in self.seen:
            ready, _, _ = select.select([self._descriptor], [], [], 0.2)
            if ready:
                try:
                    self.seen += os.read(self._descriptor, 65_536).decode(errors="replace")
                except OSError:
                    break
            assert time.monotonic() < until, self.seen
        shown, _, self.seen = self.seen.partition(text)
        return shown


@contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "engrain", "chat", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env=os.environ | {"TERM": "dumb"},
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_conversation_with_approvals_commands_and_ctrl_c(
    engrain: Command, told: Any, tmp_path: Path
) -> None:
    told(
        [("1", "shell", {"command": "touch made"})],
        "Made.",
        [("2", "shell", {"command": "touch never"})],
        "As you like.",
        [("3", "shell", {"command": "touch begun; sleep 60"})],
        "Still here.",
    )
    with terminal() as person:
        person.wait_for("> ")
        person.say("make it\n")
        person.wait_for("allow once? [y/N]")
        person.say("y\n")
        person.wait_for("Made.")
        person.say("and never\n")
        person.wait_for("allow once? [y/N]")
        person.say("n\n")
        person.wait_for("As you like.")
        person.say("/tools read_file\n")
        person.wait_for("disabled")
        person.say("/tools read_file shell\n")
        person.say("/session\n")
        person.wait_for("workspace")
        person.say("wait\n")
        person.wait_for("allow once? [y/N]")
        person.say("y\n")
        wait_until((tmp_path / "begun").exists)
        os.kill(person.process.pid, signal.SIGINT)
        person.wait_for("cancelled")
        person.say("are you there?\n")
        person.wait_for("Still here.")
        person.say("/quit\n")
        assert person.process.wait(WAIT_S) == 0
    assert (tmp_path / "made").exists()
    assert not (tmp_path / "never").exists()
    (session,) = engrain("sessions", "list", "--json").json["items"]
    assert engrain("sessions", "verify", session["id"]).code == 0
    shown = engrain("sessions", "show", session["id"], "--json").json["items"]
    results = [one["event"] for one in shown if one["event"]["kind"] == "tool_result"]
    assert [one.get("status", "completed") for one in results][:2] == ["completed", "not_executed"]
    assert "cancelled" in results[2]["text"]
