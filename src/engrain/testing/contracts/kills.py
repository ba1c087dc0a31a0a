"""Writers that are killed: every turn that they acknowledged is there, and none by half."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import pytest

from engrain.contracts.ids import SessionId
from engrain.testing.contracts import ANA, begin, history, hold, say
from engrain.testing.engines import Engine, open_stores
from engrain.testing.faults import Faults

WRITERS = 8
_WAIT_S = 60.0


@pytest.mark.invariant("INV-07")
class TestKilledWriters:
    """`kill -9` of a process that writes."""

    def test_every_acknowledged_turn_survives_the_kill(self, shared_engine: Engine) -> None:
        with open_stores(shared_engine) as stores:
            sessions = [begin(stores).id for _ in range(WRITERS)]
        told: dict[SessionId, int] = dict.fromkeys(sessions, 0)
        with _Victim(write_for_ever, shared_engine, sessions) as victim:
            for _ in range(100):
                session_id, last = victim.receive()
                told[session_id] = last
            victim.kill()
            for session_id, last in victim.receive_the_rest():
                told[session_id] = last
        with open_stores(shared_engine) as stores:
            for session_id, last in told.items():
                found = stores.transcript.verify(ANA, session_id)
                assert found.event_count >= last
                assert found.event_count % 2 == 0, "a turn is there by half"
            assert sum(told.values()) >= 200

    @pytest.mark.invariant("INV-14")
    @pytest.mark.parametrize(("point", "are_there"), [("commit.before", 2), ("commit.after", 4)])
    def test_turn_that_was_killed_at_its_commit_is_whole_or_absent(
        self, shared_engine: Engine, point: str, are_there: int
    ) -> None:
        with open_stores(shared_engine) as stores:
            session = begin(stores)
        with _Victim(write_and_die, shared_engine, session.id, point) as victim:
            assert victim.receive() == 2
            assert list(victim.receive_the_rest()) == []
        with open_stores(shared_engine) as stores:
            assert stores.transcript.verify(ANA, session.id).event_count == are_there
            assert len(history(stores, session)) == are_there


def write_for_ever(line: Connection[Any, Any], engine: Engine, sessions: list[SessionId]) -> None:
    """A thread a session, each of which tells every receipt as soon as it has it."""
    telling = threading.Lock()
    with open_stores(engine) as stores:

        def write(session_id: SessionId) -> None:
            lease = hold(stores, stores.sessions.read(ANA, session_id))
            while True:
                receipt = say(stores, lease, "said", reply="heard")
                with telling:
                    line.send((session_id, receipt.last_sequence))

        with ThreadPoolExecutor(WRITERS) as threads:
            list(threads.map(write, sessions))


def write_and_die(
    line: Connection[Any, Any], engine: Engine, session_id: SessionId, point: str
) -> None:
    """Tells of one turn, and is killed at a point of the next one's commit."""
    with open_stores(engine) as stores:
        lease = hold(stores, stores.sessions.read(ANA, session_id))
        line.send(say(stores, lease, "first", reply="yes").last_sequence)
        with Faults() as faults:
            faults.kill(point)
            line.send(say(stores, lease, "second", reply="yes").last_sequence)


class _Victim:
    """A process of its own that tells what it has done."""

    def __init__(self, body: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe(duplex=False)
        self._process: SpawnProcess = context.Process(
            target=body, args=(theirs, *arguments), daemon=True
        )
        self._process.start()
        theirs.close()

    def receive(self) -> Any:
        assert self._line.poll(_WAIT_S), "the process says nothing"
        return self._line.recv()

    def receive_the_rest(self) -> list[Any]:
        """What it still told before it died, whole messages only; it must have been killed."""
        told = []
        try:
            while True:
                told.append(self.receive())
        except (EOFError, OSError):
            self._process.join(_WAIT_S)
            assert self._process.exitcode == -signal.SIGKILL
            return told

    def kill(self) -> None:
        self._process.kill()

    def __enter__(self) -> _Victim:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()
        self._line.close()
