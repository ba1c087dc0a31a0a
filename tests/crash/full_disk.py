"""`python -m crash.full_disk FOLDER`: an agent works on a small disk until it is full, and after.

Tells in one line of JSON what failed, what was acknowledged, and what is there afterwards.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from agent.scripted import ANA, Counted, Script, agent, calls
from engrain import Memory
from engrain.contracts.errors import EngrainError, UnknownEffects
from engrain.contracts.events import ToolResult, UserMessage

BALLAST_BYTES = 1_500_000
RESULT_BYTES = 150_000
TURNS_MAX = 100


async def work(folder: Path) -> dict[str, Any]:
    ballast = folder / "ballast"
    ballast.write_bytes(b"x" * BALLAST_BYTES)
    told: dict[str, Any] = {"done": [], "error": None}
    tool = Counted(gives=lambda _: "r" * RESULT_BYTES)
    with Memory.open(folder / "engrain.sqlite3") as memory:
        session_id = memory.sessions.start(ANA).id
        durable = memory.durable(agent(Script(*_replies()), tool), ANA, session_id)
        await durable.resume()
        try:
            for number in range(TURNS_MAX):
                await durable.run(f"turn {number}")
                told["done"].append(f"turn {number}")
        except EngrainError as error:
            told["error"] = error.code
        ballast.unlink()
        try:
            await durable.recover()
        except UnknownEffects as doubt:
            told["in_doubt"] = len(doubt.calls)
            await durable.recover(accept_unknown_effects=True)
        after = await durable.run("after")
        told["after"] = after.text
        await durable.close()
        events = [each.event for each in memory.sessions.iter_events(ANA, session_id)]
        memory.sessions.verify(ANA, session_id)
    told["said"] = [each.text for each in events if isinstance(each, UserMessage)]
    told["results"] = [each.status for each in events if isinstance(each, ToolResult)]
    told["runs"] = tool.runs
    return told


def _replies() -> list[Any]:
    """A call and an answer a turn; which of them a failed turn leaves over does not matter."""
    replies: list[Any] = []
    for number in range(TURNS_MAX):
        replies += [calls((str(number), "book")), "ok"]
    return replies


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(asyncio.run(work(Path(sys.argv[1])))).decode())
