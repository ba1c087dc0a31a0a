"""A pydantic-ai agent in a durable session: planned, run once, published, and resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import Tool

from agent.scripted import ANA, Counted, kinds
from agent.test_durable_session import begin, results, stored, take
from engrain import Memory
from engrain.agent.adapters.pydantic_ai import PydanticAgent
from engrain.contracts.errors import SnapshotMismatch, UnknownEffects


class Replies:
    """Gives one response after the other to pydantic-ai's own `FunctionModel`."""

    def __init__(self, *replies: list[Any]) -> None:
        self._replies = list(replies)
        self.seen: list[list[ModelMessage]] = []

    def model(self) -> FunctionModel:
        return FunctionModel(self._reply, stream_function=self._stream, model_name="scripted")

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen.append(list(messages))
        return ModelResponse(parts=self._replies.pop(0))

    async def _stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        response = self._reply(messages, info)
        for at, part in enumerate(response.parts):
            if isinstance(part, TextPart):
                for piece in part.content.split(" "):
                    yield piece + " "
            elif isinstance(part, ToolCallPart):
                yield {
                    at: DeltaToolCall(
                        name=part.tool_name,
                        json_args=part.args_as_json_str(),
                        tool_call_id=part.tool_call_id,
                    )
                }


def call(call_id: str, name: str, args: Any = None) -> ToolCallPart:
    return ToolCallPart(name, args or {}, tool_call_id=call_id)


class Desk:
    """A tool that books and counts."""

    def __init__(self) -> None:
        self.booked: list[str] = []

    def book(self, city: str) -> str:
        """Books a flight."""
        self.booked.append(city)
        return f"booked {city}"


def porto(call_id: str) -> ToolCallPart:
    return call(call_id, "book", {"city": "Porto"})


def test_a_tool_runs_once_and_the_whole_turn_is_kept(memory: Memory) -> None:
    session_id, desk = begin(memory), Desk()
    replies = Replies([TextPart("I book."), porto("1"), porto("2")], [TextPart("Done!")])
    loop = Agent(replies.model(), tools=[desk.book], instructions="Be brief.")
    (result,) = asyncio.run(take(memory, loop, session_id, "book it"))
    expected = ["user_message", "assistant_message", "tool_call", "tool_call"]
    expected += ["tool_result", "tool_result", "audit", "assistant_message"]
    assert kinds(stored(memory, session_id)) == expected
    assert (result.output, desk.booked) == ("Done!", ["Porto", "Porto"])


def test_a_resumed_agent_sees_its_history_with_calls_and_results(memory: Memory) -> None:
    session_id, desk = begin(memory), Desk()
    first = Replies([porto("1")], [TextPart("Done!")])
    asyncio.run(take(memory, Agent(first.model(), tools=[desk.book]), session_id, "book it"))
    second = Replies([TextPart("To Porto.")])
    asyncio.run(take(memory, Agent(second.model(), tools=[desk.book]), session_id, "where to?"))
    parts = [part for message in second.seen[0] for part in message.parts]
    assert [type(part) for part in parts] == [
        UserPromptPart,
        ToolCallPart,
        ToolReturnPart,
        TextPart,
        UserPromptPart,
    ]
    assert (parts[2].content, parts[-1].content) == ("booked Porto", "where to?")  # type: ignore[union-attr]
    assert desk.booked == ["Porto"]


def test_a_stream_shows_pieces_of_the_answer(memory: Memory) -> None:
    session_id, desk = begin(memory), Desk()
    replies = Replies([porto("1")], [TextPart("All is done")])

    async def watch() -> list[Any]:
        loop = Agent(replies.model(), tools=[desk.book])
        async with memory.durable(loop, ANA, session_id) as durable:
            return [item async for item in durable.run_stream("book it")]

    seen = asyncio.run(watch())
    assert "".join(item for item in seen if isinstance(item, str)) == "All is done "
    assert seen[-1].text.strip() == "All is done"


def test_what_a_tool_raises_is_kept_before_the_run_fails(memory: Memory) -> None:
    session_id = begin(memory)

    def fly() -> str:
        raise ZeroDivisionError

    loop = Agent(Replies([call("1", "fly")]).model(), tools=[fly])
    with pytest.raises(ZeroDivisionError):
        asyncio.run(take(memory, loop, session_id, "fly"))
    assert results(memory, session_id) == {"1": "failed"}
    assert kinds(stored(memory, session_id))[-1] == "error"


def test_a_tool_that_asks_for_another_try_gets_it_as_another_call(memory: Memory) -> None:
    session_id, tries = begin(memory), [0]

    def fly() -> str:
        tries[0] += 1
        if tries[0] == 1:
            raise ModelRetry("say it again")
        return "flown"

    replies = Replies([call("1", "fly")], [call("2", "fly")], [TextPart("Done!")])
    asyncio.run(take(memory, Agent(replies.model(), tools=[fly], retries=2), session_id, "fly"))
    assert results(memory, session_id) == {"1": "failed", "2": "completed"}


@pytest.mark.parametrize(
    "bad",
    [call("1", "rm"), call("1", "book", {"town": "Porto"}), call("1", "book", '["Porto"]')],
    ids=["an unknown tool", "wrong arguments", "no object"],
)
def test_a_call_that_cannot_run_is_kept_with_the_reason(memory: Memory, bad: Any) -> None:
    session_id, desk = begin(memory), Desk()
    replies = Replies([bad, porto("2")], [TextPart("Done!")])
    asyncio.run(take(memory, Agent(replies.model(), tools=[desk.book]), session_id, "go"))
    assert results(memory, session_id) == {"1": "not_executed", "2": "completed"}
    assert desk.booked == ["Porto"]


def test_duplicate_ids_run_each_call_once(memory: Memory) -> None:
    session_id, desk = begin(memory), Desk()
    replies = Replies([porto("1"), porto("1")], [porto("1")], [TextPart("Done!")])
    asyncio.run(take(memory, Agent(replies.model(), tools=[desk.book]), session_id, "go"))
    assert results(memory, session_id) == {
        "1": "completed",
        "1-2": "completed",
        "1~2": "completed",
    }
    assert len(desk.booked) == 3


class Trip(BaseModel):
    city: str


def test_a_structured_output_is_the_answer_as_json(memory: Memory) -> None:
    session_id, desk = begin(memory), Desk()
    replies = Replies([porto("1")], [call("2", "final_result", {"city": "Porto"})])
    loop = Agent(replies.model(), tools=[desk.book], output_type=Trip)
    (result,) = asyncio.run(take(memory, loop, session_id, "book it"))
    assert (result.output, result.text) == (Trip(city="Porto"), '{"city":"Porto"}')
    assert results(memory, session_id) == {"1": "completed"}


def test_a_tool_that_requires_approval_asks_the_session(memory: Memory) -> None:
    session_id, desk, asked = begin(memory), Desk(), []
    replies = Replies([porto("1")], [porto("2")], [TextPart("Done!")])
    loop = Agent(replies.model(), tools=[Tool(desk.book, requires_approval=True)])

    async def approve(journaled: Any, tool: Any) -> bool:
        asked.append(tool.name)
        return journaled.call.call_id == "2"

    async def life() -> None:
        async with memory.durable(loop, ANA, session_id, approve=approve) as durable:
            await durable.run("book it")

    asyncio.run(life())
    assert (asked, desk.booked) == (["book", "book"], ["Porto"])
    assert results(memory, session_id) == {"1": "not_executed", "2": "completed"}


def test_plain_tools_run_beside_the_agent_s_own(memory: Memory) -> None:
    session_id, desk, plain = begin(memory), Desk(), Counted("look", gives=lambda _: "seen")
    replies = Replies([porto("1"), call("2", "look", {"at": "x"})], [TextPart("Done!")])
    loop = PydanticAgent(Agent(replies.model(), tools=[desk.book]), tools=[plain.tool()])
    asyncio.run(take(memory, loop, session_id, "go"))
    assert results(memory, session_id) == {"1": "completed", "2": "completed"}
    assert (plain.runs, desk.booked) == (1, ["Porto"])
    told = [part for part in replies.seen[1][-1].parts if isinstance(part, ToolReturnPart)]
    assert [part.content for part in told] == ["booked Porto", "seen"]


def test_other_tools_model_or_words_are_drift(memory: Memory) -> None:
    session_id, desk = begin(memory), Desk()
    asyncio.run(take(memory, Agent(Replies([TextPart("Hi.")]).model()), session_id, "hi"))
    for other in (
        Agent(Replies().model(), tools=[desk.book]),
        Agent(Replies().model(), instructions="Be rude."),
        Agent(FunctionModel(Replies()._reply, model_name="other")),
        Agent(Replies().model(), output_type=Trip),
        PydanticAgent(Agent(Replies().model()), version="2"),
    ):
        with pytest.raises(SnapshotMismatch) as drift:
            asyncio.run(take(memory, other, session_id, "hi"))
        assert drift.value.differences
        assert "rude" not in drift.value.message


def test_a_killed_tool_is_in_doubt_and_is_not_run_again(memory: Memory) -> None:
    session_id, runs = begin(memory), [0]

    class Killed(BaseException):
        """Stands for the end of the process."""

    def fly() -> str:
        runs[0] += 1
        raise Killed

    loop = Agent(Replies([call("1", "fly")]).model(), tools=[fly])
    with pytest.raises(BaseException) as end:
        asyncio.run(take(memory, loop, session_id, "fly"))
    assert "Killed" in repr(end.value)
    again = Agent(Replies([TextPart("I do not know.")]).model(), tools=[fly])
    with pytest.raises(UnknownEffects) as doubt:
        asyncio.run(take(memory, again, session_id, "did I fly?"))
    assert [each["call_id"] for each in doubt.value.calls] == ["1"]
    memory.recovery.recover(ANA, session_id, accept_unknown_effects=True)
    asyncio.run(take(memory, again, session_id, "did I fly?"))
    assert (runs, results(memory, session_id)) == ([1], {"1": "unknown_effect"})
