"""`engrain sessions recover`: refused with the calls in doubt, then closed once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from engrain import Memory, Scope, SessionId, ToolCall, ToolResult, UserMessage
from engrain.contracts.journal import Batch, ProposedCall

ME = Scope(org="local", user="ana")


@pytest.fixture
def killed(engrain: Callable[..., Any], home: Path) -> str:
    """A session whose agent died with one call done, one in doubt and one never started."""
    session_id: str = engrain("sessions", "start", "--json").json["id"]
    with Memory.open(home / "memory" / "engrain.sqlite3") as memory:
        journal = memory._agent_stores.journal
        with memory.sessions.lease(ME, SessionId(UUID(session_id))) as writer:
            lease = writer._lease
            journal.open_turn(lease, [UserMessage(text="book it")])
            calls = [ProposedCall(ToolCall(call_id=one, name="book")) for one in "abc"]
            journal.plan(lease, Batch(tuple(calls)))
            journal.start(lease, ["a", "b"])
            journal.complete(lease, ToolResult(call_id="a", text="booked"))
    return session_id


def test_a_call_in_doubt_needs_a_person_and_says_its_key(
    engrain: Callable[..., Any], killed: str
) -> None:
    ran = engrain("sessions", "recover", killed, "--json")
    assert (ran.code, ran.out, ran.error["code"]) == (4, "", "unknown_effects")
    (call,) = ran.error["calls"]
    assert (call["call_id"], call["tool"]) == ("b", "book")
    assert UUID(call["idempotency_key"])
    assert "--accept-unknown-effects" in engrain("sessions", "recover", killed).err


def test_accepted_it_is_closed_once_and_says_what_became_of_each_call(
    engrain: Callable[..., Any], killed: str
) -> None:
    ran = engrain("sessions", "recover", killed, "--accept-unknown-effects", "--json")
    assert ran.code == 0
    found = {name: ran.json[name] for name in ("completed", "not_executed", "unknown_effects")}
    assert found == {"completed": ["a"], "not_executed": ["c"], "unknown_effects": ["b"]}
    again = engrain("sessions", "recover", killed)
    assert (again.code, again.out) == (0, "")
    assert "nothing to recover" in again.err
    shown = engrain("sessions", "show", killed).out
    assert "not_executed" in shown and "unknown_effect" in shown
    assert engrain("sessions", "verify", killed).code == 0


def test_a_session_that_is_whole_has_nothing_to_recover(engrain: Callable[..., Any]) -> None:
    session_id = engrain("sessions", "start", "--json").json["id"]
    ran = engrain("sessions", "recover", session_id, "--json")
    assert (ran.code, ran.json["turn"]) == (0, None)
