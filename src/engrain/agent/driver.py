"""A loop without a framework: a plain callable model and plain tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from engrain.agent.loop import Answer, Description, History
from engrain.agent.proposals import ModelReply
from engrain.agent.running import run_either
from engrain.agent.tools import Tool
from engrain.agent.turn import ActiveTurn
from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue, LimitExceeded
from engrain.contracts.events import Erased, Event, System

Model = Callable[[Sequence[Event | Erased], Sequence[Tool]], ModelReply | Awaitable[ModelReply]]
"""Gets all that was said and done so far and the tools it may call; gives its reply.

A plain function runs on a worker thread, a coroutine function on the event loop.
"""


class PlainAgent:
    """A model, its tools and its instructions. `name` tells models apart in the snapshot."""

    def __init__(
        self,
        model: Model,
        *,
        tools: Sequence[Tool] = (),
        instructions: str = "",
        name: str = "plain",
    ) -> None:
        self._model = model
        self._tools = tuple(tools)
        self._instructions = instructions
        self._name = name

    async def describe(self) -> Description:
        """Tools, name and instructions, as they were given."""
        configuration = {
            "loop": "plain:1",
            "model": self._name,
            "instructions": self._instructions,
        }
        return Description(self._tools, configuration)

    async def run(self, turn: ActiveTurn, history: History) -> Answer:
        """Asks, runs every proposed call, and asks again, until there are no more calls.

        Calls of one reply run side by side. Raises `LimitExceeded` after `model_rounds_max`.
        """
        told = [System(text=self._instructions)] if self._instructions else []
        for _ in range(limits.model_rounds_max):
            reply = await self._ask([*told, *history, *turn.events], turn.tools)
            if not reply.calls:
                return Answer(reply.text, reply.text)
            planned = await turn.plan(reply)
            await turn.call_all(planned)
            await turn.publish()
        raise LimitExceeded("model_rounds_max", limits.model_rounds_max)

    async def _ask(self, events: Sequence[Event | Erased], tools: Sequence[Tool]) -> ModelReply:
        reply = await run_either(self._model, events, tools)
        if not isinstance(reply, ModelReply):
            raise InvalidValue("model", "must reply with a ModelReply")
        return reply
