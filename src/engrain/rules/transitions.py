"""State machines as tables. `advance` is the only way from one state to the next.

The SQL checks list the same words, and docs/state-machines.md is generated from here.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """States and moves: (state, action) → next state. What is not in the table cannot happen."""

    name: str
    about: str
    states: tuple[str, ...]
    moves: dict[tuple[str, str], str]

    @property
    def actions(self) -> tuple[str, ...]:
        """Every action of the table, in order of first mention."""
        return tuple(dict.fromkeys(action for _, action in self.moves))


def may(machine: Machine, state: str, action: str) -> bool:
    """True when the action is possible in the state."""
    return (state, action) in machine.moves


def advance(machine: Machine, state: str, action: str) -> str:
    """The state after the action; raises `ValueError` for a move that is not in the table."""
    try:
        return machine.moves[state, action]
    except KeyError:
        raise ValueError(f"{machine.name}: no {action} while {state}") from None


LEASE: Final = Machine(
    name="lease",
    about=(
        "One writer's authority over a session. `claim` and its fencing epoch begin it; renew, "
        "write and release are for the holder of its token alone. A deadline in the past, or "
        "further away than the longest lease, makes it expired."
    ),
    states=("free", "live", "expired"),
    moves={
        ("free", "claim"): "live",
        ("expired", "claim"): "live",
        ("live", "renew"): "live",
        ("expired", "renew"): "live",
        ("live", "write"): "live",
        ("live", "release"): "free",
        ("expired", "release"): "free",
        ("free", "release"): "free",
        ("live", "expire"): "expired",
    },
)

EPISODE: Final = Machine(
    name="episode",
    about=(
        "An episode's id, which follows from where its words stood. The same append twice is one "
        "row; an id that was forgotten never comes back."
    ),
    states=("absent", "known", "tombstoned"),
    moves={
        ("absent", "append"): "known",
        ("known", "append"): "known",
        ("known", "tombstone"): "tombstoned",
        ("tombstoned", "tombstone"): "tombstoned",
    },
)

TERMS: Final = Machine(
    name="terms",
    about="The forward row of an episode's search terms. It is found in either state.",
    states=("unsettled", "settled", "removed"),
    moves={
        ("unsettled", "settle"): "settled",
        ("unsettled", "remove"): "removed",
        ("settled", "remove"): "removed",
    },
)

TURN: Final = Machine(
    name="turn",
    about=(
        "The agent turn of a session. `open` waits for the model; `calling` has a batch of tool "
        "calls whose results are not all in history. While there is one, nobody else may append."
    ),
    states=("none", "open", "calling"),
    moves={
        ("none", "open"): "open",
        ("open", "plan"): "calling",
        ("calling", "publish"): "open",
        ("open", "close"): "none",
        ("open", "recover"): "none",
        ("calling", "recover"): "none",
        ("none", "recover"): "none",
    },
)

CALL: Final = Machine(
    name="call",
    about=(
        "One tool call of a pending batch. Only a planned call may be refused, since it cannot "
        "have run; one that was started and has no result is in doubt, and never runs again."
    ),
    states=("planned", "started", "completed"),
    moves={
        ("planned", "start"): "started",
        ("planned", "refuse"): "completed",
        ("started", "complete"): "completed",
        ("started", "doubt"): "completed",
    },
)

MACHINES: Final = (LEASE, EPISODE, TERMS, TURN, CALL)
