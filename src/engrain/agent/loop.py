"""What a durable session needs of whatever asks the model: one small protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from engrain.agent.tools import Tool
from engrain.agent.turn import ActiveTurn
from engrain.contracts.events import Erased, Event
from engrain.contracts.snapshots import SessionSnapshot

History = Sequence[Event | Erased]


class Description(msgspec.Struct, frozen=True):
    """The whole tool authority, and what else the answers depend on, as JSON."""

    tools: tuple[Tool, ...]
    configuration: dict[str, Any]

    def snapshot(self) -> SessionSnapshot:
        """The form that a session is bound to."""
        return SessionSnapshot(
            configuration=self.configuration,
            tools=tuple(tool.authority() for tool in self.tools),
        )


class Answer(msgspec.Struct, frozen=True):
    """The end of a turn: the words that history keeps, and what the loop's caller gets."""

    text: str
    output: Any


class Loop(Protocol):
    """Asks a model until it answers. It plans, calls and publishes through the turn alone."""

    async def describe(self) -> Description:
        """What the session is bound to; a resume must offer the same."""
        ...

    async def run(self, turn: ActiveTurn, history: History) -> Answer:
        """One turn after `history`, whose input is in `turn.events`, durable already."""
        ...
