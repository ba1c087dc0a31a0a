"""`python -m crash.writing JOB`: a process that writes until it is killed, and tells what it did.

A thread a session claims it for a short while, over and over, and appends turns of four events. It
tells in lines of JSON, each of them one `write` to a pipe and so whole or absent:

    ["held", session, epoch, cursor]                  a lease that has replayed up to `cursor`
    ["asked", session, marker, operation id]          an append that begins
    ["done", session, marker, epoch, first, last]     its receipt
    ["overtaken", session, epoch]                     a lease that was refused
    ["asleep", session]                               the process stops itself, as `kill -STOP` does
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from uuid import UUID, uuid4

import msgspec

from engrain.contracts.errors import Busy, SessionBusy, StaleLease, StaleReplay, Uncertain
from engrain.contracts.events import AssistantMessage, Audit, Event, UserMessage
from engrain.contracts.ids import OperationId, SessionId
from engrain.contracts.leases import SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.transcript import AppendReceipt
from engrain.services.sessions import SessionWriter
from engrain.system.workspace import SystemWorkspaces
from engrain.testing.engines import (
    Engine,
    PostgresEngine,
    SqliteFileEngine,
    Stores,
    open_stores,
)

ANA = Scope(org="acme", user="ana")
LEASE_TTL_US = 300_000
TURN_EVENTS = 4
_PADDING = "x" * 500
_POLL_S = 0.02


class Ask(msgspec.Struct, frozen=True):
    """One append that was begun: a marker that its words carry, and its operation id."""

    marker: str
    operation_id: UUID


class Job(msgspec.Struct, frozen=True):
    """What a process is told to do."""

    url: str
    name: str
    sessions: list[UUID]
    repeats: dict[str, list[Ask]] = {}
    """By session: appends of the dead that nobody acknowledged, to be repeated first."""
    sleeps_after: int = 0
    """After so many turns of a session the process stops itself; 0 never."""
    mutant: str = ""


def engine_of(url: str) -> Engine:
    return PostgresEngine(url) if "://" in url else SqliteFileEngine(Path(url))


def turn_of(marker: str) -> list[Event]:
    """Four events that carry the marker."""
    return [
        UserMessage(text=f"{marker} {_PADDING}"),
        AssistantMessage(text=f"{marker} let me look"),
        Audit(name="looked", text=f"{marker} nothing there"),
        AssistantMessage(text=f"{marker} {_PADDING}"),
    ]


def tell(*words: object) -> None:
    os.write(sys.stdout.fileno(), msgspec.json.encode(words) + b"\n")


class SessionLoop:
    """Appends to one session for as long as the process lives."""

    def __init__(self, stores: Stores, job: Job, session_id: SessionId) -> None:
        self._stores = stores
        self._job = job
        self._session_id = session_id
        self._asks = deque(job.repeats.get(str(session_id), []))
        self._numbers = count(1)

    def run(self) -> None:
        while True:
            lease, writer = self._hold()
            with suppress(StaleLease):
                for ask in self._iter_asks():
                    receipt = self._append(writer, ask)
                    self._asks.popleft()
                    self._tell_done(lease, ask, receipt)
            tell("overtaken", self._session_id, lease.epoch)

    def _iter_asks(self) -> Iterator[Ask]:
        """What is left of the dead or of an overtaken lease, then turns of our own."""
        while True:
            if not self._asks:
                marker = f"{self._job.name}.{self._job.sessions.index(self._session_id)}"
                self._asks.append(Ask(f"{marker}.{next(self._numbers)}", uuid4()))
            yield self._asks[0]

    def _hold(self) -> tuple[SessionLease, SessionWriter]:
        lease = self._claim()
        stores = self._stores
        writer = SessionWriter(
            lease, stores.leases, stores.transcript, stores.snapshots, SystemWorkspaces()
        )
        writer.replay()
        tell("held", self._session_id, lease.epoch, lease.cursor)
        return lease, writer

    def _claim(self) -> SessionLease:
        while True:
            try:
                return self._stores.leases.claim(ANA, self._session_id, ttl_us=LEASE_TTL_US)
            except SessionBusy as held:
                time.sleep(min(held.retry_after_s or _POLL_S, _POLL_S))
            except (Busy, Uncertain):  # nothing was done, or expiry frees what was
                continue

    def _append(self, writer: SessionWriter, ask: Ask) -> AppendReceipt:
        tell("asked", self._session_id, ask.marker, ask.operation_id)
        while True:
            try:
                operation_id = OperationId(ask.operation_id)
                return writer.append(turn_of(ask.marker), operation_id=operation_id)
            except StaleReplay:
                writer.replay()
            except (Busy, Uncertain):  # repeated under the same operation id
                continue

    def _tell_done(self, lease: SessionLease, ask: Ask, receipt: AppendReceipt) -> None:
        where = (receipt.first_sequence, receipt.last_sequence)
        tell("done", self._session_id, ask.marker, lease.epoch, *where)
        if ask.marker.endswith(f".{self._job.sleeps_after}"):
            tell("asleep", self._session_id)
            signal.raise_signal(signal.SIGSTOP)  # of this thread, which is in no commit


def main(encoded: str) -> None:
    job = msgspec.json.decode(encoded, type=Job)
    if job.mutant:
        from crash import mutants

        mutants.plant(job.mutant)
    with open_stores(engine_of(job.url)) as stores, ThreadPoolExecutor(32) as threads:
        loops = [SessionLoop(stores, job, SessionId(one)) for one in job.sessions]
        for ended in [threads.submit(loop.run) for loop in loops]:
            ended.add_done_callback(lambda failed: fail(failed.exception()))


def fail(error: BaseException | None) -> None:
    """A loop never ends by itself: what ended it ends the process, and is seen."""
    os.write(sys.stderr.fileno(), f"{type(error).__name__}: {error}\n".encode())
    os._exit(1)


if __name__ == "__main__":
    from crash import writing  # the module that mutants change, and not a second copy of it

    writing.main(sys.argv[1])
