"""A model that says what it was told to, tools that count, and turns run to their end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engrain import Scope
from engrain.agent.driver import PlainAgent
from engrain.agent.proposals import ModelReply, RequestedCall
from engrain.agent.tools import Tool, ToolContext
from engrain.contracts.events import Erased, Event

ANA = Scope(org="acme", user="ana")
OPEN_SCHEMA: dict[str, Any] = {"type": "object"}


class Script:
    """A model that gives one reply after the other and keeps what it was shown."""

    def __init__(self, *replies: ModelReply | str | BaseException) -> None:
        self._replies = list(replies)
        self.shown: list[list[Event | Erased]] = []
        self.declared: list[list[str]] = []

    def __call__(self, events: Sequence[Event | Erased], tools: Sequence[Tool]) -> ModelReply:
        self.shown.append(list(events))
        self.declared.append([tool.name for tool in tools])
        reply = self._replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return ModelReply(reply) if isinstance(reply, str) else reply


def calls(*named: tuple[str, str] | tuple[str, str, str], text: str = "") -> ModelReply:
    """A reply with calls: id, tool and, when not empty, arguments."""
    return ModelReply(text, tuple(RequestedCall(*each) for each in named))


class Counted:
    """A tool that counts its runs and the keys it was given."""

    def __init__(
        self,
        name: str = "book",
        gives: Callable[[dict[str, Any]], Any] = lambda _: "booked",
        **settings: Any,
    ) -> None:
        self.name = name
        self.runs = 0
        self.keys: list[str] = []
        self._gives = gives
        self._settings = settings

    def tool(self) -> Tool:
        return Tool(
            name=self.name,
            description=f"Does {self.name}.",
            schema=OPEN_SCHEMA,
            run=self._run,
            implementation=f"test.{self.name}:1",
            **self._settings,
        )

    def _run(self, context: ToolContext, arguments: dict[str, Any]) -> str:
        self.runs += 1
        self.keys.append(context.idempotency_key)
        outcome: str = self._gives(arguments)
        return outcome


def agent(script: Script, *tools: Counted, **settings: Any) -> PlainAgent:
    return PlainAgent(script, tools=[each.tool() for each in tools], **settings)


def kinds(events: Sequence[Event | Erased]) -> list[str]:
    return [str(type(event).__struct_config__.tag) for event in events]
