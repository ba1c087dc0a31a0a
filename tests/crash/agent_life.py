"""The life of one process: it resumes a session, and takes turns with tools until it is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from crash import agent_mutants
from crash.agent_logs import Logs
from engrain import Memory, Scope, SessionId
from engrain.agent.driver import PlainAgent
from engrain.agent.proposals import ModelReply, RequestedCall
from engrain.agent.session import DurableAgentSession
from engrain.agent.tools import Tool, ToolContext
from engrain.contracts import faults
from engrain.contracts.errors import Busy, Conflict, EngrainError, Uncertain, UnknownEffects
from engrain.contracts.events import Erased, Event, ToolCall, UserMessage

ANA = Scope(org="acme", user="ana")
LEASE_TTL_US = 150_000
POINTS = (
    "turn.opened",
    "batch.planned",
    "tool.started",
    "tool.ran",
    "tool.completed",
    "batch.published",
    "turn.closed",
    "commit.before",
    "commit.after",
)
_POLL_S = 0.005


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One process: where it works, and the signal that it gives itself at the nth of a point."""

    url: str
    folder: Path
    name: str
    session_id: SessionId
    point: str = ""
    nth: int = 1
    signal: int = signal.SIGKILL
    mutant: str = ""


def live(life: Life) -> None:
    """Works for as long as the process lives."""
    if life.mutant:
        agent_mutants.plant(life.mutant)
    reached = count(1)

    def hook(name: str) -> None:
        if name == life.point and next(reached) == life.nth:
            os.kill(os.getpid(), life.signal)

    faults.arm(hook)
    with Memory.open(life.url) as memory:
        asyncio.run(_Worker(memory, life).work())


class _Worker:
    def __init__(self, memory: Memory, life: Life) -> None:
        self._memory = memory
        self._life = life
        self._logs = Logs(life.folder)
        self._numbers = count(1)

    async def work(self) -> None:
        while True:
            durable = self._memory.durable(
                self._agent(), ANA, self._life.session_id, lease_ttl_us=LEASE_TTL_US
            )
            try:
                await self._resume(durable)
                for number in self._numbers:
                    prompt = f"{self._life.name}.{number}"
                    result = await durable.run(prompt)
                    self._logs.answers.append(self._life.session_id, prompt, result.text)
            except (Busy, Conflict, Uncertain):  # a lease that is held, lost or taken over
                await asyncio.sleep(_POLL_S)
            finally:
                with suppress(EngrainError):
                    await durable.close()

    async def _resume(self, durable: DurableAgentSession) -> None:
        try:
            await durable.resume()
        except UnknownEffects as doubt:
            if self._life.mutant == "run started calls again":
                for call in doubt.calls:
                    self._logs.effects.append(call["call_id"], call["idempotency_key"])
            await durable.resume(accept_unknown_effects=True)

    def _agent(self) -> PlainAgent:
        return PlainAgent(
            _reply,
            tools=[
                _tool("on_a_thread", self._act),
                _tool("on_the_loop", self._act_on_the_loop),
            ],
        )

    def _act(self, context: ToolContext, arguments: dict[str, Any]) -> str:
        self._logs.effects.append(context.call_id, context.idempotency_key)
        return f"did {context.call_id}"

    async def _act_on_the_loop(self, context: ToolContext, arguments: dict[str, Any]) -> str:
        await asyncio.sleep(0)
        return self._act(context, arguments)


def _tool(name: str, run: Any) -> Tool:
    return Tool(
        name=name,
        description="Leaves a line in a log.",
        schema={"type": "object"},
        run=run,
        implementation=f"crash.{name}:1",
    )


async def _reply(events: Sequence[Event | Erased], tools: Sequence[Tool]) -> ModelReply:
    """Batches of 1 to 8 calls, side by side or one after the other; all follows from the prompt."""
    asked = max(at for at, event in enumerate(events) if isinstance(event, UserMessage))
    prompt = events[asked].text
    done = sum(isinstance(event, ToolCall) for event in events[asked:])
    chance = random.Random(prompt)
    calls = chance.randint(1, 8)
    sizes = chance.choice(([calls], [1] * calls, [calls, 1, 2]))
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    if done not in starts:
        return ModelReply(f"done {prompt}")
    names = [tool.name for tool in tools]
    wanted = range(done, done + sizes[starts.index(done)])
    return ModelReply(calls=tuple(RequestedCall(f"{prompt}:{at}", names[at % 2]) for at in wanted))
