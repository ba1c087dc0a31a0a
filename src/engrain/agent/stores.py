"""What an agent's session reads and writes, and the door through which it waits for it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
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


class WatchedDoor:
    """A door that knows what is still behind it: work goes on when its waiter was dropped."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._under_way: set[Event] = set()

    async def __call__(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        done = Event()
        self._under_way.add(done)

        def run() -> T:
            try:
                return verb(*args, **kwargs)
            finally:
                self._under_way.discard(done)
                done.set()

        return await self._door(run)

    async def settle(self) -> None:
        """Returns when nothing is behind the door any more."""
        for done in tuple(self._under_way):
            await self._door(done.wait)


class AgentStores(msgspec.Struct, frozen=True, kw_only=True):
    """The stores of one open memory."""

    run: Door
    sessions: SessionStore
    leases: LeaseStore
    transcript: TranscriptStore
    snapshots: SnapshotStore
    journal: JournalStore
    workspaces: Workspaces
