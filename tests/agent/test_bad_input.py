"""Whatever tools and models give: typed results or errors, and a session that goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from agent.scripted import ANA, Counted, Script, agent, calls
from agent.test_durable_session import begin, results, stored, take
from engrain import Memory
from engrain.agent.proposals import ModelReply, RequestedCall
from engrain.agent.tools import ToolFailure
from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue, LimitExceeded
from engrain.contracts.events import ToolCall, ToolResult


def result_of(memory: Memory, session_id: Any, call_id: str = "1") -> ToolResult:
    found = [e for e in stored(memory, session_id) if isinstance(e, ToolResult)]
    return next(each for each in found if each.call_id == call_id)


def raise_(error: BaseException) -> str:
    raise error


def whole(memory: Memory, session_id: Any) -> None:
    """The session verifies, has no open turn, and takes another one."""
    assert memory.recovery.find_open(ANA, session_id) is None
    memory.sessions.verify(ANA, session_id)


GIVEN: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "nothing": (lambda _: None, "completed", ""),
    "a NUL": (lambda _: "a\0b", "completed", "a\ufffdb"),
    "a lone surrogate": (lambda _: "a\ud800b", "completed", "a\ufffdb"),
    "a number": (lambda _: 7, "failed", "The tool returned no text."),
    "bytes": (lambda _: b"x", "failed", "The tool returned no text."),
    "another call's result": (
        lambda _: ToolResult(call_id="2", text="mine"),
        "failed",
        "The tool returned no text.",
    ),
    "an exception with a secret": (
        lambda _: raise_(ValueError("sk-secret")),
        "failed",
        "The tool raised ValueError.",
    ),
    "a reason": (lambda _: raise_(ToolFailure("No seats.")), "failed", "No seats."),
    "a reason with a surrogate": (
        lambda _: raise_(ToolFailure("No \udfff.")),
        "failed",
        "No \ufffd.",
    ),
}


@pytest.mark.parametrize("given", GIVEN)
def test_what_a_tool_gives_becomes_one_result(memory: Memory, given: str) -> None:
    gives, status, text = GIVEN[given]
    session_id = begin(memory)
    script = Script(calls(("1", "book")), "ok")
    asyncio.run(take(memory, agent(script, Counted(gives=gives)), session_id, "go"))
    found = result_of(memory, session_id)
    assert (found.status, found.text) == (status, text)
    whole(memory, session_id)


def test_300_megabytes_are_cut_on_a_code_point_and_say_so(memory: Memory) -> None:
    session_id = begin(memory)
    script = Script(calls(("1", "book"), ("2", "book")), "ok")
    tool = Counted(gives=lambda _: "ä" * 150_000_000)
    asyncio.run(take(memory, agent(script, tool), session_id, "go"))
    for call_id in ("1", "2"):
        found = result_of(memory, session_id, call_id)
        assert found.text.startswith("ääää")
        assert found.text.endswith("[cut: the whole result had 300,000,000 bytes]")
        assert len(found.text.encode()) <= limits.tool_result_bytes_max
    whole(memory, session_id)


@pytest.mark.parametrize(
    "arguments",
    ["[1]", "7", "", "{", '{"a": NaN}', '{"a":1,"a":2}', "[" * 10_000, '{"a":' * 10_000, "\ud800"],
    ids=["list", "number", "nothing", "half", "nan", "twice", "deep list", "deep", "surrogate"],
)
def test_arguments_that_are_no_object_refuse_the_call_and_the_others_run(
    memory: Memory, arguments: str
) -> None:
    session_id, book = begin(memory), Counted()
    script = Script(calls(("1", "book", arguments), ("2", "book")), "ok")
    asyncio.run(take(memory, agent(script, book), session_id, "go"))
    assert results(memory, session_id) == {"1": "not_executed", "2": "completed"}
    kept = next(e for e in stored(memory, session_id) if isinstance(e, ToolCall))
    assert isinstance(json.loads(kept.arguments), dict)
    assert book.runs == 1
    whole(memory, session_id)


def test_unknown_tools_odd_names_and_equal_ids_are_kept_and_answered(memory: Memory) -> None:
    session_id, book = begin(memory), Counted()
    script = Script(
        ModelReply(
            calls=(
                RequestedCall("", ""),
                RequestedCall("1", "rm -rf"),
                RequestedCall("1", "book"),
                RequestedCall("1", "book"),
                RequestedCall("x" * 5_000, "\ud800" * 5_000),
            )
        ),
        calls(("1", "book")),
        "ok",
    )
    asyncio.run(take(memory, agent(script, book), session_id, "go"))
    found = results(memory, session_id)
    assert list(found.values()).count("completed") == book.runs == 3
    assert list(found.values()).count("not_executed") == 3
    whole(memory, session_id)


def test_forty_calls_run_once_each(memory: Memory) -> None:
    session_id, book = begin(memory), Counted()
    script = Script(calls(*((str(at), "book") for at in range(40))), "ok")
    asyncio.run(take(memory, agent(script, book), session_id, "go"))
    assert (book.runs, len(results(memory, session_id))) == (40, 40)
    assert len(set(book.keys)) == 40


def test_more_calls_than_a_batch_may_have_fail_the_turn_and_run_nothing(memory: Memory) -> None:
    session_id, book = begin(memory), Counted()
    script = Script(calls(*((str(at), "book") for at in range(129))), "ok")
    with pytest.raises(LimitExceeded):
        asyncio.run(take(memory, agent(script, book), session_id, "go"))
    assert book.runs == 0
    whole(memory, session_id)


@pytest.mark.parametrize("reply", [None, 7, "words"])
def test_a_model_that_replies_with_something_else_fails_the_turn(
    memory: Memory, reply: Any
) -> None:
    session_id = begin(memory)
    loop = agent(Script())
    loop._model = lambda *_: reply
    with pytest.raises(InvalidValue):
        asyncio.run(take(memory, loop, session_id, "go"))
    whole(memory, session_id)


def test_a_model_s_words_are_repaired_and_cut(memory: Memory) -> None:
    session_id = begin(memory)
    loop = agent(Script("a\0\ud800" + "b" * 5_000_000))
    asyncio.run(take(memory, loop, session_id, "go"))
    said = stored(memory, session_id)[-1]
    assert said.text.startswith("a\ufffd\ufffdb")
    assert said.repaired
    whole(memory, session_id)
