"""The event loop never waits for a disk: measured, with a disk that takes two seconds."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from agent.scripted import ANA, Counted, Script, agent, calls
from engrain import Memory
from engrain.contracts import faults

SLOW_S = 2.0
STALL_S_MAX = 0.05
_TICK_S = 0.002


async def longest_stall(stop: asyncio.Event) -> float:
    """How much longer than asked the loop kept a sleeper waiting, at worst."""
    worst, before = 0.0, time.perf_counter()
    while not stop.is_set():
        await asyncio.sleep(_TICK_S)
        now = time.perf_counter()
        worst, before = max(worst, now - before - _TICK_S), now
    return worst


@pytest.mark.invariant("INV-34")
def test_a_disk_that_takes_two_seconds_stalls_the_loop_for_less_than_50_ms(
    tmp_path: Path,
) -> None:
    waited: list[str] = []

    def slow(point: str) -> None:
        if point == "commit.before" and len(waited) < 3:
            waited.append(point)
            time.sleep(SLOW_S)

    async def life(memory: Memory) -> float:
        session_id = (await memory.run(memory.sessions.start, ANA)).id
        script = Script("warm", calls(("1", "book"), ("2", "book")), "Done!")
        async with memory.durable(agent(script, Counted()), ANA, session_id) as durable:
            await durable.run("warm up")
            stop = asyncio.Event()
            watch = asyncio.create_task(longest_stall(stop))
            faults.arm(slow)
            try:
                assert (await durable.run("book it")).text == "Done!"
            finally:
                faults.arm(None)
                stop.set()
            return await watch

    with Memory.open(tmp_path / "engrain.sqlite3") as memory:
        stall = asyncio.run(life(memory))
    assert len(waited) == 3
    assert stall < STALL_S_MAX
