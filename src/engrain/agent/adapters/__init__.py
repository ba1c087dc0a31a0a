"""Loops of other people's frameworks. Each is imported when an agent of it is given."""

from __future__ import annotations

from engrain.agent.loop import Loop
from engrain.contracts.errors import InvalidValue


def loop_of(agent: object) -> Loop:
    """The agent itself when it is a `Loop`, else the adapter of the framework it is made with."""
    if type(agent).__module__.partition(".")[0] == "pydantic_ai":
        from engrain.agent.adapters.pydantic_ai import PydanticAgent

        return PydanticAgent(agent)  # type: ignore[arg-type]
    if callable(getattr(agent, "describe", None)) and callable(getattr(agent, "run", None)):
        loop: Loop = agent  # type: ignore[assignment]
        return loop
    raise InvalidValue("agent", "must be a PlainAgent, a pydantic-ai Agent or another Loop")
