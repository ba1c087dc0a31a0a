"""A database that is closed while other threads use it: what was said of a write stays true."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from engrain import Memory
from engrain.contracts.errors import Refused
from engrain.contracts.scope import Scope

ANA = Scope(org="acme", user="ana")
ROUNDS = 12
WRITERS = 4
READERS = 2


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("fresh_postgres_url"))
    return ":memory:" if request.param == "sqlite-memory" else str(tmp_path / "a.sqlite3")


class Users:
    """Threads that use a memory until it refuses; whatever else it raises is kept."""

    def __init__(self, memory: Memory, round_: int) -> None:
        self._memory = memory
        self._round = round_
        self.done: list[str] = []
        self.refused: list[str] = []
        self.wrong: list[BaseException] = []
        self.is_busy = threading.Event()
        verbs = [*(self._write for _ in range(WRITERS)), *(self._read for _ in range(READERS))]
        self._threads = [
            threading.Thread(target=self._use, args=(verb, f"{round_} {number}"))
            for number, verb in enumerate(verbs)
        ]

    def __enter__(self) -> Users:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()

    def _use(self, verb: Callable[[str], None], name: str) -> None:
        try:
            for number in count():
                verb(f"{name} {number}")
        except Refused:
            pass
        except BaseException as error:  # noqa: BLE001  (the test looks at it)
            self.wrong.append(error)

    def _write(self, name: str) -> None:
        try:
            self._memory.audit.record(ANA, name, {})
        except Refused:
            self.refused.append(name)
            raise
        self.done.append(name)
        if len(self.done) > self._round:
            self.is_busy.set()

    def _read(self, _name: str) -> None:
        self._memory.audit.list(ANA)


def names_in(memory: Memory) -> Iterator[str]:
    after = 0
    while page := memory.audit.list(ANA, after=after, limit=500):
        yield from (entry.name for entry in page)
        after = page[-1].number


@pytest.mark.invariant("INV-07")
def test_closing_waits_for_writes_under_way_and_refuses_the_others(url: str) -> None:
    done: list[str] = []
    refused: list[str] = []
    for round_ in range(ROUNDS):
        memory = Memory.open(url)
        with Users(memory, round_) as users:
            users.is_busy.wait()
            memory.close()
        assert users.wrong == []
        done += users.done
        refused += users.refused
    assert len(refused) == ROUNDS * WRITERS
    if url != ":memory:":
        with Memory.open(url) as memory:
            kept = list(names_in(memory))
        assert sorted(kept) == sorted(done)
        assert not set(kept) & set(refused)
