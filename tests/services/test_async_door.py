"""`await memory.run(verb, …)`: the one async door, and what an open memory asks of its caller."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engrain import Memory, NotFound, Refused, Turn, Uncertain, UserMessage
from engrain.contracts import faults
from services.exports import ANA

WAIT_S = 10.0


class Gate:
    """A verb that says when it has begun and ends when it is told to."""

    def __init__(self, outcome: Callable[[], Any] = lambda: "done") -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.ended = False
        self._outcome = outcome

    def __call__(self) -> Any:
        self.begun.set()
        assert self.go_on.wait(WAIT_S)
        self.ended = True
        return self._outcome()


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, WAIT_S)


def test_verbs_of_every_kind_go_through_the_door(quick_memory: Memory) -> None:
    async def life() -> list[str]:
        session = await quick_memory.run(quick_memory.sessions.start, ANA, title="trip")
        writer = await quick_memory.run(quick_memory.sessions.lease, ANA, session.id)
        await quick_memory.run(writer.append, Turn.said("I moved to Porto", reply="Noted"))
        await quick_memory.run(writer.release)
        await quick_memory.run(quick_memory.enrichment.extract, ANA, session.id)
        block = await quick_memory.run(quick_memory.recall, ANA, "Porto?", budget_tokens=200)
        return [item.episode.text for item in block.items]

    assert asyncio.run(life())[0] == "I moved to Porto"


def test_errors_come_through_the_door_as_they_are(quick_memory: Memory) -> None:
    session = quick_memory.sessions.start(ANA)
    stranger = ANA.__class__(org="acme", user="ben")
    with pytest.raises(NotFound):
        asyncio.run(quick_memory.run(quick_memory.sessions.read, stranger, session.id))


def test_the_event_loop_goes_on_while_a_verb_waits(quick_memory: Memory) -> None:
    async def life() -> int:
        gate = Gate()
        waiting = asyncio.create_task(quick_memory.run(gate))
        await until(gate.begun)
        turns = 0
        for _ in range(100):
            await asyncio.sleep(0)
            turns += 1
        assert not waiting.done()
        gate.go_on.set()
        assert await waiting == "done"
        return turns

    assert asyncio.run(life()) == 100


def test_many_calls_share_a_bounded_pool(quick_memory: Memory) -> None:
    seen: set[str] = set()

    async def life() -> None:
        names = [quick_memory.run(lambda: threading.current_thread().name) for _ in range(200)]
        seen.update(await asyncio.gather(*names))

    asyncio.run(life())
    assert 1 <= len(seen) <= quick_memory.config.async_workers
    assert threading.current_thread().name not in seen


@pytest.mark.invariant("INV-07")
@pytest.mark.parametrize("times", [1, 3])
def test_a_cancelled_call_ends_when_its_verb_has_ended(quick_memory: Memory, times: int) -> None:
    async def life() -> None:
        gate = Gate()
        call = asyncio.create_task(quick_memory.run(gate))
        await until(gate.begun)
        for _ in range(times):
            call.cancel()
            await asyncio.wait([call], timeout=0.01)
            assert not call.done()
        gate.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert gate.ended

    asyncio.run(life())


@pytest.mark.invariant("INV-13")
def test_a_cancelled_call_whose_acknowledgement_was_lost_says_so(quick_memory: Memory) -> None:
    def lose() -> None:
        raise Uncertain("lost")

    async def life() -> None:
        gate = Gate(lose)
        call = asyncio.create_task(quick_memory.run(gate))
        await until(gate.begun)
        call.cancel()
        await asyncio.sleep(0)
        gate.go_on.set()
        with pytest.raises(Uncertain):
            await call

    asyncio.run(life())


def test_a_cancelled_call_that_fails_leaves_no_error_unseen(quick_memory: Memory) -> None:
    unseen: list[dict[str, Any]] = []

    async def life() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        gate = Gate(lambda: 1 / 0)
        call = asyncio.create_task(quick_memory.run(gate))
        await until(gate.begun)
        call.cancel()
        await asyncio.sleep(0)
        gate.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        del call
        gc.collect()

    asyncio.run(life())
    assert unseen == []


@pytest.mark.invariant("INV-07")
def test_a_cancelled_append_is_durable_or_absent_and_never_half(memory: Memory) -> None:
    session = memory.sessions.start(ANA)
    committing, go_on = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == "commit.before":
            committing.set()
            assert go_on.wait(WAIT_S)

    async def life() -> None:
        with memory.sessions.lease(ANA, session.id) as writer:
            turn = (UserMessage(text="a"), UserMessage(text="b"))
            with armed(hold):
                call = asyncio.create_task(memory.run(writer.append, turn))
                await until(committing)
                call.cancel()
                await asyncio.sleep(0)
                assert not call.done()
                go_on.set()
                with pytest.raises(asyncio.CancelledError):
                    await call
            writer.append(Turn.said("c"))

    asyncio.run(life())
    events = memory.sessions.iter_events(ANA, session.id)
    assert [stored.event.text for stored in events] == ["a", "b", "c"]


@contextmanager
def armed(hook: Callable[[str], None]) -> Iterator[None]:
    faults.arm(hook)
    try:
        yield
    finally:
        faults.arm(None)


# Open and closed ---------------------------------------------------------------------------------


def test_a_closed_memory_refuses_every_verb_and_starts_no_thread(tmp_path: Path) -> None:
    memory = Memory.open(tmp_path / "engrain.sqlite3")
    session = memory.sessions.start(ANA)
    memory.close()
    memory.close()
    before = threading.active_count()
    for verb in (
        lambda: memory.sessions.read(ANA, session.id),
        lambda: memory.sessions.start(ANA),
        lambda: memory.recall(ANA, "anything", budget_tokens=100),
        lambda: asyncio.run(memory.run(memory.sessions.list, ANA)),
    ):
        with pytest.raises(Refused, match="closed"):
            verb()
    assert threading.active_count() == before


def test_an_unclosed_memory_warns_and_frees_its_files(tmp_path: Path) -> None:
    path = tmp_path / "engrain.sqlite3"
    with pytest.warns(ResourceWarning, match="a Memory was not closed"):
        Memory.open(path)
        gc.collect()
    assert not path.with_name(f"{path.name}-wal").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Memory.open(path) as memory:
            assert memory.sessions.list(ANA).items == ()
        del memory
        gc.collect()


def test_closing_waits_for_calls_that_are_under_way(tmp_path: Path) -> None:
    memory = Memory.open(tmp_path / "engrain.sqlite3")
    gate = Gate()

    async def life() -> None:
        call = asyncio.create_task(memory.run(gate))
        await until(gate.begun)
        closing = asyncio.create_task(asyncio.to_thread(memory.close))
        await asyncio.wait([closing], timeout=0.05)
        assert not closing.done()
        gate.go_on.set()
        await closing
        assert await call == "done"

    started = time.monotonic()
    asyncio.run(life())
    assert time.monotonic() - started < WAIT_S
