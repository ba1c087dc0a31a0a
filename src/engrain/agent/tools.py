"""Tools as plain values: what a model may call, and what stands behind the name.

A tool never fails for the journal: what it raises becomes a failed result. Whether it may run is
the authority's business, what became of it the journal's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from threading import Event
from typing import Any

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue
from engrain.contracts.snapshots import ToolAuthority


class ToolFailure(Exception):
    """Raised by a tool to say why it failed; its text is shown to the model."""


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool learns of its call. The same call has the same `idempotency_key` for ever.

    `cancelled` is set when the turn is cancelled: a tool on a worker thread, which nothing can
    stop, should look at it and end early.
    """

    call_id: str
    idempotency_key: str
    cancelled: Event = msgspec.field(default_factory=Event)


ToolBody = Callable[[ToolContext, dict[str, Any]], str | Awaitable[str]]
"""Gets arguments that were read from JSON as an object; gives the text that the model is shown.

A plain function runs on a worker thread, a coroutine function on the event loop.
"""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool. `schema` is the JSON schema of its arguments.

    `implementation` names code and version: a session resumes only with the implementations that
    it was made with. `needs_approval` asks a person before every call.
    """

    name: str
    description: str
    schema: dict[str, Any]
    run: ToolBody
    implementation: str
    result_bytes_max: int = limits.tool_result_bytes_max
    needs_approval: bool = False

    def authority(self) -> ToolAuthority:
        """The part of a session's snapshot that stands for this tool."""
        return ToolAuthority(
            name=self.name,
            schema=self.schema,
            implementation=self.implementation,
            limits={
                "result_bytes_max": self.result_bytes_max,
                "needs_approval": int(self.needs_approval),
            },
        )


class ToolSet:
    """The tools of a session's authority, those that are enabled, and those to declare."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise InvalidValue("tools", "two tools have the same name")
            self._tools[tool.name] = tool
        self._enabled = set(self._tools)
        self._named: set[str] = set()

    @property
    def enabled(self) -> tuple[str, ...]:
        """Names of the tools that may run, in the order of the authority."""
        return tuple(name for name in self._tools if name in self._enabled)

    @property
    def declared(self) -> tuple[Tool, ...]:
        """What the model is told of: the enabled tools, and disabled ones that history names."""
        told = self._enabled | self._named
        return tuple(tool for name, tool in self._tools.items() if name in told)

    def enable(self, names: Iterable[str]) -> None:
        """Lets exactly these run; `InvalidValue` for a name outside the authority."""
        wanted = set(names)
        if not wanted <= self._tools.keys():
            raise InvalidValue("names", "a tool outside the session's authority")
        self._enabled = wanted

    def name_in_history(self, names: Iterable[str]) -> None:
        """Keeps tools declared that history names, enabled or not."""
        self._named.update(names)

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def find_enabled(self, name: str) -> Tool | None:
        return self._tools[name] if name in self._enabled else None
