"""What the journal promises to whoever drives it, on both engines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.scripted import ANA, Counted, Script, agent, calls
from agent.test_durable_session import begin, stored, take
from engrain import Memory, Turn
from engrain.contracts import limits
from engrain.contracts.errors import LimitExceeded, TurnOpen
from engrain.contracts.events import ToolCall, ToolResult, UserMessage
from engrain.contracts.journal import Batch, ProposedCall


@pytest.mark.invariant("INV-32")
def test_nobody_else_appends_while_an_agent_turn_is_open(memory: Memory) -> None:
    session_id = begin(memory)
    stores = memory._agent_stores
    with memory.sessions.lease(ANA, session_id) as writer:
        stores.journal.open_turn(writer._lease, [UserMessage(text="hi")])
        with pytest.raises(TurnOpen):
            writer.append(Turn.said("me too"))
    with memory.sessions.lease(ANA, session_id) as other, pytest.raises(TurnOpen):
        other.append(Turn.said("and me"))
    assert [event.text for event in stored(memory, session_id)] == ["hi"]
    memory.recovery.recover(ANA, session_id)
    with memory.sessions.lease(ANA, session_id) as writer:
        writer.append(Turn.said("now"))


@pytest.mark.invariant("INV-33")
@pytest.mark.parametrize("count", [1, 2, 16, 128])
def test_a_batch_that_was_planned_can_be_published_with_the_largest_results(
    memory: Memory, count: int
) -> None:
    session_id = begin(memory)
    full = Counted(gives=lambda _: "\x01" * limits.event_bytes_max)  # six bytes each, escaped
    script = Script(calls(*((str(at), "book") for at in range(count)), text="w" * 100_000), "ok")
    (result,) = asyncio.run(take(memory, agent(script, full), session_id, "go"))
    assert result.text == "ok"
    found = [each for each in stored(memory, session_id) if isinstance(each, ToolResult)]
    assert [each.status for each in found] == ["completed"] * count
    assert all("[cut: the whole result had" in each.text for each in found)


@pytest.mark.invariant("INV-33")
def test_a_batch_that_could_not_be_published_is_not_planned(memory: Memory) -> None:
    session_id, journal = begin(memory), memory._agent_stores.journal
    proposed = [proposal(at, limits.event_bytes_max) for at in range(8)]
    with memory.sessions.lease(ANA, session_id) as writer:
        journal.open_turn(writer._lease, [UserMessage(text="hi")])
        with pytest.raises(LimitExceeded):
            journal.plan(writer._lease, Batch(tuple(proposed)))
        found = memory.recovery.find_open(ANA, session_id)
        assert found is not None and found.calls == ()
        journal.plan(writer._lease, Batch((proposed[0],)))
    memory.recovery.recover(ANA, session_id)


def proposal(at: int, reserved_bytes: int) -> Any:
    return ProposedCall(ToolCall(call_id=str(at), name="book"), reserved_bytes)
