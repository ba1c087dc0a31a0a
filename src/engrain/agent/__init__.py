"""One agent's life on top of the record.

    from engrain.agent import PlainAgent, Tool

The names below are imported when they are asked for: an event loop and a framework cost time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engrain.agent.adapters.pydantic_ai import PydanticAgent
    from engrain.agent.driver import PlainAgent
    from engrain.agent.loop import Answer, Description, Loop
    from engrain.agent.proposals import ModelReply, RequestedCall
    from engrain.agent.session import DurableAgentSession, TurnResult
    from engrain.agent.tools import Tool, ToolContext, ToolFailure
    from engrain.agent.turn import ActiveTurn

_PLACES = {
    "ActiveTurn": "turn",
    "Answer": "loop",
    "Description": "loop",
    "DurableAgentSession": "session",
    "Loop": "loop",
    "ModelReply": "proposals",
    "PlainAgent": "driver",
    "PydanticAgent": "adapters.pydantic_ai",
    "RequestedCall": "proposals",
    "Tool": "tools",
    "ToolContext": "tools",
    "ToolFailure": "tools",
    "TurnResult": "session",
}

__all__ = [
    "ActiveTurn",
    "Answer",
    "Description",
    "DurableAgentSession",
    "Loop",
    "ModelReply",
    "PlainAgent",
    "PydanticAgent",
    "RequestedCall",
    "Tool",
    "ToolContext",
    "ToolFailure",
    "TurnResult",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
