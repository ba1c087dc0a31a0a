"""Tools as plain values: what a model may call, and what stands behind the name.

A tool never fails for the journal: what it raises becomes a failed result. Whether it may run is
the authority's business, what became of it the journal's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from engrain.contracts import limits
from engrain.contracts.snapshots import ToolAuthority


class ToolFailure(Exception):
    """Raised by a tool to say why it failed; its text is shown to the model."""


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool learns of its call. The same call has the same `idempotency_key` for ever."""

    call_id: str
    idempotency_key: str


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
