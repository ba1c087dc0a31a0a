"""What is forgotten while a session is read stays forgotten: no copy brings it back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

import pytest

from engrain.contracts.events import Erased
from engrain.contracts.forks import ForkRequest
from engrain.storage.database import Anchor, Database, Reader, Writer
from engrain.storage.stores.forks import SqlForkStore
from engrain.system.ids import SystemIds
from engrain.testing.contracts import ANA, begin, history, hold, say
from engrain.testing.engines import Engine, Stores
from engrain.testing.faults import Faults

T = TypeVar("T")
_WAIT_S = 60.0


class Interposed:
    """A database on which something else happens right before the first write."""

    def __init__(self, database: Database, before: Callable[[], object]) -> None:
        self._database = database
        self._before = [before]

    def read(self) -> AbstractContextManager[Reader]:
        return self._database.read()

    def write(self, anchor: Anchor, body: Callable[[Writer], T], *, size: int = 0) -> T:
        while self._before:
            self._before.pop()()
        return self._database.write(anchor, body, size=size)

    def try_write(self, anchor: Anchor, body: Callable[[Writer], T]) -> T | None:
        return self._database.try_write(anchor, body)

    def close(self) -> None:
        self._database.close()


@pytest.mark.invariant("INV-11")
class TestForgettingWhileForking:
    """`redact` against `fork`."""

    def test_event_that_is_forgotten_after_the_source_was_read_is_not_taken_over(
        self, stores: Stores, engine: Engine
    ) -> None:
        source = begin(stores)
        say(stores, hold(stores, source), "quince", reply="noted")
        database = Interposed(
            stores.database, lambda: stores.transcript.redact(ANA, source.id, [1])
        )
        forks = SqlForkStore(database, stores.scopes, SystemIds())
        fork = forks.fork(ANA, source.id, ForkRequest())
        assert history(stores, fork)[0].event == Erased(was="user_message")
        assert stores.transcript.verify(ANA, fork.id).erased == 1
        left = engine.alter("SELECT payload FROM events WHERE payload IS NOT NULL")
        assert not any(b"quince" in bytes(row[0]) for row in left)

    def test_fork_waits_for_an_erasure_that_is_under_way(
        self, stores: Stores, engine: Engine
    ) -> None:
        source = begin(stores)
        say(stores, hold(stores, source), "quince", reply="noted")
        with ThreadPoolExecutor(2) as threads, Faults() as faults:
            erasing = faults.pause("commit.before")
            erased = threads.submit(stores.transcript.redact, ANA, source.id, [1])
            erasing.wait()
            forked = threads.submit(stores.forks.fork, ANA, source.id, ForkRequest())
            with pytest.raises(TimeoutError):
                forked.result(0.2)
            erasing.resume()
            assert erased.result(_WAIT_S) == 1
            fork = forked.result(_WAIT_S)
        assert stores.transcript.verify(ANA, fork.id).erased == 1
        left = engine.alter("SELECT payload FROM events WHERE payload IS NOT NULL")
        assert not any(b"quince" in bytes(row[0]) for row in left)
