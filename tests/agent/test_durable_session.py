"""A durable session: every step kept, every ending honest, on both engines."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from agent.scripted import ANA, Counted, Script, agent, calls, kinds
from engrain import Memory
from engrain.agent.session import DurableAgentSession, TurnResult
from engrain.contracts import faults
from engrain.contracts.errors import (
    InvalidValue,
    LimitExceeded,
    Refused,
    SessionBusy,
    SnapshotMismatch,
    StaleLease,
    TurnOpen,
    UnknownEffects,
)
from engrain.contracts.events import Event, Failure, ToolResult, UserMessage

WAIT_S = 10.0


def begin(memory: Memory) -> Any:
    return memory.sessions.start(ANA, title="trip").id


def stored(memory: Memory, session_id: Any) -> list[Any]:
    """What another reader finds."""
    return [each.event for each in memory.sessions.iter_events(ANA, session_id)]


def results(memory: Memory, session_id: Any) -> dict[str, str]:
    events = stored(memory, session_id)
    return {each.call_id: each.status for each in events if isinstance(each, ToolResult)}


async def take(memory: Memory, loop: Any, session_id: Any, *prompts: str) -> list[TurnResult]:
    async with memory.durable(loop, ANA, session_id) as durable:
        return [await durable.run(prompt) for prompt in prompts]


# A turn that goes well


def test_a_turn_is_kept_whole_and_in_order(memory: Memory) -> None:
    session_id, book = begin(memory), Counted()
    script = Script(calls(("1", "book"), ("2", "book"), text="I will book."), "Done!")
    (result,) = asyncio.run(take(memory, agent(script, book), session_id, "book it"))
    expected = ["user_message", "assistant_message", "tool_call", "tool_call"]
    expected += ["tool_result", "tool_result", "assistant_message"]
    assert kinds(stored(memory, session_id)) == expected == kinds(result.events)
    assert (result.output, result.turn, book.runs) == ("Done!", 1, 2)
    assert len(set(book.keys)) == 2
    assert memory.recovery.find_open(ANA, session_id) is None
    assert memory.sessions.verify(ANA, session_id).event_count == 7


def test_the_model_is_shown_what_was_said_before_and_in_this_turn(memory: Memory) -> None:
    session_id = begin(memory)
    asyncio.run(take(memory, agent(Script("Hello!")), session_id, "hi"))
    script = Script(calls(("1", "book")), "Done!")
    with pytest.raises(SnapshotMismatch):
        asyncio.run(take(memory, agent(script, Counted()), session_id, "again"))
    script = Script("Yes.")
    asyncio.run(take(memory, agent(script), session_id, "again"))
    assert kinds(script.shown[0]) == ["user_message", "assistant_message", "user_message"]


def test_a_stream_shows_events_once_they_are_durable_and_ends_with_the_result(
    memory: Memory,
) -> None:
    session_id, book = begin(memory), Counted()

    async def watch() -> list[Any]:
        script = Script(calls(("1", "book")), "Done!")
        seen: list[Any] = []
        async with memory.durable(agent(script, book), ANA, session_id) as durable:
            async for item in durable.run_stream("book it"):
                seen.append(item)
                if isinstance(item, ToolResult):
                    found = memory.recovery.find_open(ANA, session_id)
                    assert found is not None
                    assert [each.state for each in found.calls] == ["completed"]
        return seen

    *events, result = asyncio.run(watch())
    assert kinds(events) == ["tool_call", "tool_result", "assistant_message"]
    assert result.text == "Done!"


def test_a_second_turn_waits_for_no_one_and_is_refused_while_one_runs(memory: Memory) -> None:
    session_id, gate = begin(memory), threading.Event()
    slow = Counted(gives=lambda _: str(gate.wait(WAIT_S)))

    async def both() -> None:
        script = Script(calls(("1", "book")), "Done!")
        async with memory.durable(agent(script, slow), ANA, session_id) as durable:
            first = asyncio.create_task(durable.run("book it"))
            await asyncio.sleep(0)
            with pytest.raises(Refused, match="is running"):
                await durable.run("and this")
            gate.set()
            assert (await first).text == "Done!"

    asyncio.run(both())


def test_nobody_else_writes_while_a_session_is_resumed(memory: Memory) -> None:
    session_id = begin(memory)

    async def both() -> None:
        async with memory.durable(agent(Script()), ANA, session_id):
            with pytest.raises(SessionBusy):
                await memory.durable(agent(Script()), ANA, session_id).resume()

    asyncio.run(both())
    memory.sessions.lease(ANA, session_id).release()


def test_a_blank_answer_ends_the_turn_visibly(memory: Memory) -> None:
    session_id = begin(memory)
    asyncio.run(take(memory, agent(Script("  \n")), session_id, "hi"))
    assert kinds(stored(memory, session_id)) == ["user_message", "audit"]


# What fails


def test_a_model_that_fails_leaves_a_bounded_diagnostic_and_the_session_usable(
    memory: Memory,
) -> None:
    session_id = begin(memory)

    async def life() -> None:
        script = Script(RuntimeError("secret " * 10_000), "Better now.")
        async with memory.durable(agent(script), ANA, session_id) as durable:
            with pytest.raises(RuntimeError):
                await durable.run("hi")
            assert (await durable.run("again")).text == "Better now."
            assert kinds([each.event for each in durable.history]) == kinds(
                stored(memory, session_id)
            )

    asyncio.run(life())
    events = stored(memory, session_id)
    assert kinds(events) == ["user_message", "error", "user_message", "assistant_message"]
    assert events[1] == Failure(code="RuntimeError", text="The turn failed: RuntimeError.")


def test_a_failure_after_a_batch_keeps_the_batch(memory: Memory) -> None:
    session_id, book = begin(memory), Counted()
    script = Script(calls(("1", "book")), RuntimeError())
    with pytest.raises(RuntimeError):
        asyncio.run(take(memory, agent(script, book), session_id, "book it"))
    expected = ["user_message", "tool_call", "tool_result", "error"]
    assert kinds(stored(memory, session_id)) == expected
    assert results(memory, session_id) == {"1": "completed"}


def test_a_model_that_never_answers_is_stopped(
    quick_memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engrain.contracts import limits

    monkeypatch.setattr(limits, "model_rounds_max", 3)
    session_id, book = begin(quick_memory), Counted()
    script = Script(*(calls((str(at), "book")) for at in range(9)))
    with pytest.raises(LimitExceeded):
        asyncio.run(take(quick_memory, agent(script, book), session_id, "go"))
    assert book.runs == 3
    assert kinds(stored(quick_memory, session_id))[-1] == "error"


def test_a_watcher_that_leaves_cancels_the_turn_and_nothing_known_is_lost(
    memory: Memory,
) -> None:
    session_id, book = begin(memory), Counted()

    async def watch() -> None:
        script = Script(calls(("1", "book")), "never asked", "Fine.")
        async with memory.durable(agent(script, book), ANA, session_id) as durable:
            stream = durable.run_stream("book it")
            async for item in stream:
                if isinstance(item, ToolResult):
                    break
            await stream.aclose()  # type: ignore[attr-defined]
            assert (await durable.run("and now?")).text in ("never asked", "Fine.")

    asyncio.run(watch())
    events = stored(memory, session_id)
    assert kinds(events)[:4] == ["user_message", "tool_call", "tool_result", "error"]
    assert results(memory, session_id) == {"1": "completed"}
    assert events[3].code == "cancelled"


def test_a_cancelled_turn_waits_for_its_tool_and_keeps_what_it_did(memory: Memory) -> None:
    session_id, begun, gate = begin(memory), threading.Event(), threading.Event()

    def wait(_: Any) -> str:
        begun.set()
        return f"booked {gate.wait(WAIT_S)}"

    book = Counted(gives=wait)

    async def life() -> None:
        script = Script(calls(("1", "book")), "Fine.")
        async with memory.durable(agent(script, book), ANA, session_id) as durable:
            turn = asyncio.create_task(durable.run("book it"))
            await asyncio.to_thread(begun.wait, WAIT_S)
            turn.cancel()
            await asyncio.sleep(0)
            gate.set()
            with pytest.raises(asyncio.CancelledError):
                await turn
            assert (await durable.run("and?")).text == "Fine."

    asyncio.run(life())
    assert (book.runs, results(memory, session_id)) == (1, {"1": "completed"})


@pytest.mark.invariant("INV-31")
def test_a_tool_that_outlives_its_cancelled_turn_is_in_doubt_and_a_person_decides(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engrain.contracts import limits

    monkeypatch.setattr(limits, "cancel_grace_us", 10_000)
    session_id, begun, gate = begin(memory), threading.Event(), threading.Event()

    def wait(_: Any) -> str:
        begun.set()
        gate.wait(WAIT_S)
        return "too late"

    async def life() -> None:
        script = Script(calls(("1", "book"), ("2", "book")), "Fine.")
        book = Counted(gives=wait)
        async with memory.durable(agent(script, book), ANA, session_id) as durable:
            turn = asyncio.create_task(durable.run("book it"))
            await asyncio.to_thread(begun.wait, WAIT_S)
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
            with pytest.raises(TurnOpen):
                await durable.run("and?")
            with pytest.raises(UnknownEffects) as doubt:
                await durable.recover()
            assert {call["tool"] for call in doubt.value.calls} == {"book"}
            assert {call["idempotency_key"] for call in doubt.value.calls} <= set(book.keys)
            report = await durable.recover(accept_unknown_effects=True)
            assert len(report.unknown_effects) == book.runs
            assert (await durable.run("and now?")).text == "Fine."
            gate.set()

    asyncio.run(life())
    assert "unknown_effect" in results(memory, session_id).values()


def test_a_dropped_turn_blocks_the_next_until_it_is_recovered(memory: Memory) -> None:
    session_id, gate = begin(memory), threading.Event()

    async def life() -> None:
        async with memory.durable(agent(Script("Fine.")), ANA, session_id) as durable:
            turn = durable.run("dropped")
            turn.send(None)  # runs to the first wait and is never awaited again
            turn.close()
            with pytest.raises(TurnOpen):
                await durable.run("next")
            await durable.recover()
            assert (await durable.run("next")).text == "Fine."

    asyncio.run(life())
    gate.set()


def test_a_prompt_that_cannot_be_kept_changes_nothing(memory: Memory) -> None:
    session_id = begin(memory)

    async def life() -> None:
        async with memory.durable(agent(Script("Fine.")), ANA, session_id) as durable:
            with pytest.raises(LimitExceeded):
                await durable.run("x" * 5_000_000)
            with pytest.raises(InvalidValue):
                await durable.run([])
            assert (await durable.run("ok")).text == "Fine."

    asyncio.run(life())
    assert kinds(stored(memory, session_id)) == ["user_message", "assistant_message"]


# Authority


def test_drift_of_the_agent_fails_closed_and_says_where(memory: Memory) -> None:
    session_id = begin(memory)
    asyncio.run(take(memory, agent(Script("Hi."), Counted()), session_id, "hi"))
    other = agent(Script(), Counted("book", result_bytes_max=4096), Counted("cancel"), name="big")
    with pytest.raises(SnapshotMismatch) as drift:
        asyncio.run(take(memory, other, session_id, "hi"))
    lines = "\n".join(drift.value.differences)
    assert "configuration.model: was plain, now big" in lines
    assert "tool.cancel: is new" in lines
    assert "tool.book.limits.result_bytes_max" in lines
    fork = memory.sessions.fork(ANA, session_id, snapshot=asyncio.run(snapshot_of(memory, other)))
    again = agent(
        Script("Hi."), Counted("book", result_bytes_max=4096), Counted("cancel"), name="big"
    )
    (result,) = asyncio.run(take(memory, again, fork.id, "go on"))
    assert result.text == "Hi."


async def snapshot_of(memory: Memory, loop: Any) -> Any:
    async with memory.durable(loop, ANA, begin(memory)) as durable:
        return durable.snapshot()


def test_history_without_a_snapshot_is_refused(memory: Memory) -> None:
    from engrain import Turn

    session_id = begin(memory)
    with memory.sessions.lease(ANA, session_id) as writer:
        writer.append(Turn.said("hi", reply="hello"))
    with pytest.raises(SnapshotMismatch):
        asyncio.run(take(memory, agent(Script()), session_id, "hi"))
    memory.sessions.lease(ANA, session_id).release()


def test_a_disabled_tool_is_not_declared_until_history_names_it_and_never_runs(
    memory: Memory,
) -> None:
    session_id, book = begin(memory), Counted()
    script = Script("a", calls(("1", "book")), "b", calls(("2", "book")), "c", "d")

    async def life() -> None:
        async with memory.durable(agent(script, book), ANA, session_id) as durable:
            durable.enable_tools([])
            await durable.run("1")
            await durable.run("2")
            await durable.run("3")
            with pytest.raises(InvalidValue):
                durable.enable_tools(["rm"])
            durable.enable_tools(["book"])
            await durable.run("4")

    asyncio.run(life())
    assert (book.runs, results(memory, session_id)) == (
        0,
        {"1": "not_executed", "2": "not_executed"},
    )
    assert script.declared == [[], [], [], ["book"], ["book"], ["book"]]


def test_a_tool_that_needs_approval_runs_only_when_it_is_given(memory: Memory) -> None:
    session_id, write = begin(memory), Counted("write", needs_approval=True)
    asked: list[str] = []

    async def approve(journaled: Any, tool: Any) -> bool:
        asked.append(journaled.call.call_id)
        return journaled.call.call_id == "yes"

    async def life() -> None:
        script = Script(calls(("yes", "write"), ("no", "write")), "ok")
        loop = agent(script, write)
        async with memory.durable(loop, ANA, session_id, approve=approve) as durable:
            await durable.run("write")

    asyncio.run(life())
    assert (sorted(asked), write.runs) == (["no", "yes"], 1)
    assert results(memory, session_id) == {"yes": "completed", "no": "not_executed"}
    approvals = [e for e in stored(memory, session_id) if kinds([e]) == ["approval"]]
    assert {each.call_id: each.is_allowed for each in approvals} == {"yes": True, "no": False}


# Takeover and recovery


@pytest.mark.invariant("INV-10")
def test_a_turn_whose_lease_was_taken_over_ends_with_a_stale_lease(memory: Memory) -> None:
    session_id, begun, gate = begin(memory), threading.Event(), threading.Event()

    def wait(_: Any) -> str:
        begun.set()
        gate.wait(WAIT_S)
        return "late"

    async def life() -> None:
        script = Script(calls(("1", "book")), "never")
        loop = agent(script, Counted(gives=wait))
        durable = memory.durable(loop, ANA, session_id, lease_ttl_us=1_000_000)
        await durable.resume()
        turn = asyncio.create_task(durable.run("book"))
        await asyncio.to_thread(begun.wait, WAIT_S)
        await steal(memory, durable)
        gate.set()
        with pytest.raises(StaleLease):
            await turn

    asyncio.run(life())


async def steal(memory: Memory, durable: DurableAgentSession) -> None:
    """Another takes the session, as if the lease had run out."""
    lease = durable._holding()
    await memory.run(durable._stores.leases.release, lease)
    other = await memory.run(durable._stores.leases.claim, ANA, durable.session_id)
    assert other.epoch > lease.epoch


@pytest.mark.invariant("INV-30")
@pytest.mark.parametrize(
    ("point", "found"),
    [
        ("turn.opened", {}),
        ("batch.planned", {"1": "not_executed"}),
        ("tool.started", {"1": "unknown_effect"}),
        ("tool.ran", {"1": "unknown_effect"}),
        ("tool.completed", {"1": "completed"}),
        ("batch.published", {"1": "completed"}),
        ("turn.closed", {"1": "completed"}),
    ],
)
def test_recovery_says_what_is_known_at_every_point_and_runs_nothing(
    memory: Memory, point: str, found: dict[str, str]
) -> None:
    session_id, book = begin(memory), Counted()

    class Dies(BaseException):
        """Ends the process, in a test."""

    def hook(name: str) -> None:
        if name == point:
            raise Dies

    async def die() -> None:
        durable = memory.durable(
            agent(Script(calls(("1", "book")), "Done!"), book), ANA, session_id
        )
        await durable.resume()
        turn = durable.run("book it")
        faults.arm(hook)
        try:
            durable._end_failed = never  # type: ignore[method-assign]
            with pytest.raises(Dies):
                await turn
        finally:
            faults.arm(None)
        await durable.close()

    asyncio.run(die())
    runs = book.runs
    if "unknown_effect" in found.values():
        with pytest.raises(UnknownEffects):
            memory.recovery.recover(ANA, session_id)
    report = memory.recovery.recover(ANA, session_id, accept_unknown_effects=True)
    assert (report.turn is None) == (point == "turn.closed")
    assert memory.recovery.recover(ANA, session_id).turn is None
    assert results(memory, session_id) == found
    assert book.runs == runs
    last = "assistant_message" if point == "turn.closed" else "error"
    assert kinds(stored(memory, session_id))[-1] == last
    (again,) = asyncio.run(take(memory, agent(Script("Back."), book), session_id, "and now?"))
    assert again.text == "Back."


async def never(*_: object) -> None:
    """A process that is gone closes nothing."""


def test_resume_closes_what_a_dead_process_left_and_reports_it(memory: Memory) -> None:
    session_id = begin(memory)

    async def life() -> None:
        first = memory.durable(agent(Script("Done!")), ANA, session_id)
        await first.resume()
        events: list[Event] = [UserMessage(text="hi")]
        await memory.run(first._stores.journal.open_turn, first._holding(), events)
        await first.close()
        async with memory.durable(agent(Script("Hi!")), ANA, session_id) as durable:
            assert durable.recovered.turn == 1
            assert kinds([each.event for each in durable.history]) == ["user_message", "error"]
            assert (await durable.run("hello?")).text == "Hi!"

    asyncio.run(life())


def test_a_session_goes_on_after_a_pause_longer_than_its_lease(memory: Memory) -> None:
    session_id = begin(memory)

    async def life() -> None:
        loop = agent(Script("One.", "Two.", "never"))
        async with memory.durable(loop, ANA, session_id, lease_ttl_us=50_000) as durable:
            await durable.run("1")
            await asyncio.sleep(0.1)
            assert (await durable.run("2")).text == "Two."
            await asyncio.sleep(0.1)
            other = await memory.run(memory.sessions.lease, ANA, session_id)
            with pytest.raises(StaleLease):
                await durable.run("3")
            await memory.run(other.release)

    asyncio.run(life())
