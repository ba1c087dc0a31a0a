"""What an agent's session reads and writes, and the door through which it waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

import msgspec

from engrain.contracts.journal import JournalStore
from engrain.contracts.leases import LeaseStore
from engrain.contracts.sessions import SessionStore
from engrain.contracts.snapshots import SnapshotStore
from engrain.contracts.transcript import TranscriptStore
from engrain.contracts.workspace import Workspaces

P = ParamSpec("P")
T = TypeVar("T")


class Door(Protocol):
    """Runs blocking work on a worker thread, as `Memory.run` does."""

    async def __call__(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...


class AgentStores(msgspec.Struct, frozen=True, kw_only=True):
    """The stores of one open memory."""

    run: Door
    sessions: SessionStore
    leases: LeaseStore
    transcript: TranscriptStore
    snapshots: SnapshotStore
    journal: JournalStore
    workspaces: Workspaces
