"""A thread that is interrupted in the middle of a write, as by Ctrl-C, stands in nobody's way."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from engrain import Memory
from engrain.contracts.errors import Busy, EngrainError, Uncertain
from engrain.contracts.scope import Scope

ANA = Scope(org="acme", user="ana")
INTERRUPTS = 150
INTERRUPTS_OF_A_POOL = 20
"""psycopg's pool loses a connection when a thread is interrupted while it waits for one."""
LATEST_S = 0.002
"""About what a write takes, so that interrupts fall before, into and after its commit."""


class Interrupter:
    """Interrupts this thread once, at a moment that nobody can foresee, while it is armed."""

    def __init__(self) -> None:
        self._moments = random.Random(7)
        self._is_armed = False

    def raise_once(self, _number: int, _frame: object) -> None:
        if self._is_armed:
            self._is_armed = False
            raise KeyboardInterrupt

    def run(self, verb: Callable[[], None]) -> None:
        """Runs `verb`, interrupted somewhere or not at all."""
        try:
            self._is_armed = True
            signal.setitimer(signal.ITIMER_REAL, self._moments.uniform(1e-6, LATEST_S))
            verb()
            self._is_armed = False
        except KeyboardInterrupt:
            pass


@pytest.fixture
def interrupter() -> Iterator[Interrupter]:
    interrupter = Interrupter()
    before = signal.signal(signal.SIGALRM, interrupter.raise_once)
    yield interrupter
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "postgresql"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    if request.param == "postgresql":
        url = str(request.getfixturevalue("fresh_postgres_url"))
    else:
        url = ":memory:" if request.param == "sqlite-memory" else str(tmp_path / "a.sqlite3")
    with Memory.open(url) as memory:
        memory.audit.record(ANA, "first", {})
        yield memory


class Writer:
    """Records entries under names of its own, and remembers what it was told of each."""

    def __init__(self, memory: Memory, name: str) -> None:
        self._memory = memory
        self._name = name
        self._numbers = count(1)
        self.done: list[str] = []
        self.refused: list[str] = []
        self.unknown: list[str] = []

    def write(self) -> None:
        name = f"{self._name} {next(self._numbers)}"
        try:
            self._memory.audit.record(ANA, name, {})
            self.done.append(name)
        except Busy:
            self.refused.append(name)
        except (Uncertain, KeyboardInterrupt):
            self.unknown.append(name)


def write_until(stopped: threading.Event, writer: Writer, errors: list[EngrainError]) -> None:
    try:
        while not stopped.is_set():
            writer.write()
    except EngrainError as error:
        errors.append(error)


def stored(memory: Memory) -> Counter[str]:
    names: Counter[str] = Counter()
    after = 0
    while page := memory.audit.list(ANA, after=after, limit=500):
        names.update(entry.name for entry in page)
        after = page[-1].number
    return names


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a destructor
@pytest.mark.invariant("INV-07")
def test_an_interrupted_writer_stands_in_nobodys_way_and_no_answer_lies(
    memory: Memory, interrupter: Interrupter
) -> None:
    stopped = threading.Event()
    errors: list[EngrainError] = []
    is_pooled = memory.config.url.startswith("postgres")
    interrupts = INTERRUPTS_OF_A_POOL if is_pooled else INTERRUPTS
    main, others = Writer(memory, "main"), [Writer(memory, f"other {n}") for n in range(2)]
    threads = [
        threading.Thread(target=write_until, args=(stopped, other, errors)) for other in others
    ]
    for thread in threads:
        thread.start()
    try:
        while len(main.unknown) < interrupts and threads[0].is_alive():
            interrupter.run(main.write)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert errors == []
    memory.audit.record(ANA, "still open", {})
    names = stored(memory)
    assert all(times == 1 for times in names.values())
    for writer in (main, *others):
        assert not set(writer.done) - set(names), "acknowledged and lost"
        assert not set(writer.refused) & set(names), "refused and kept"
    assert memory.audit.verify(ANA) == names.total()
