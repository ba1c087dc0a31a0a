"""Several imports of one file at once, or one that was overtaken: each turn exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engrain import Memory
from engrain.contracts import limits
from engrain.contracts.imports import Doing
from engrain.testing.clock import HeldClock
from engrain.testing.engines import Engine, PostgresEngine, SqliteFileEngine
from engrain.testing.races import Racers
from services.exports import (
    ANA,
    code_line,
    episode_texts,
    talk,
    texts_of,
    write_export,
    write_lines,
)
from services.racing import import_file

START_US = 1_767_225_600_000_000
CHUNK_BYTES = 1024 * 1024


@pytest.fixture(scope="module")
def importers() -> Iterator[Racers]:
    with Racers(3) as started:
        yield started


def engine_at(url: str) -> Engine:
    return PostgresEngine(url) if url.startswith("postgresql") else SqliteFileEngine(Path(url))


@pytest.mark.invariant("INV-16")
def test_imports_of_one_file_at_once_give_each_turn_exactly_once(
    importers: Racers, url: str, folder: Path
) -> None:
    path = write_export(folder / "c.json", *(talk(f"t{number}", 8) for number in range(6)))
    with importers.on(engine_at(url)):
        reports = importers.race(import_file, path)
    assert [(report.failed, report.skipped) for report in reports] == [([], {})] * 3
    assert sum(report.events_new for report in reports) == 6 * 16
    assert sum(report.turns_new for report in reports) == 6 * 8
    with Memory.open(url) as memory:
        held = texts_of(memory)
        assert held == {
            f"talk t{number}": [f"t{number} says {at}: the kiln" for at in range(16)]
            for number in range(6)
        }
        assert set(episode_texts(memory).values()) == {1}
        assert sum(episode_texts(memory).values()) == 6 * 16


@pytest.fixture
def slow_file(folder: Path) -> Path:
    """A transcript whose last turns are read a chunk later than the first ones."""
    filler = {"type": "progress", "data": "x" * 1_000}
    return write_lines(
        folder / "s.jsonl",
        *(code_line(at, f"line {at}") for at in range(1, 11)),
        *[filler] * (CHUNK_BYTES // 1_000),
        *(code_line(at, f"line {at}") for at in range(11, 21)),
    )


def is_read(done: int, total: int) -> bool:
    """Whether the last chunk was read: twice is two thirds, since indexing is the third round."""
    return done == 2 * total // 3


@pytest.mark.invariant("INV-10")
@pytest.mark.invariant("INV-16")
def test_an_import_that_was_overtaken_while_it_slept_adds_nothing_twice(
    url: str, slow_file: Path
) -> None:
    clock = HeldClock(START_US)
    overtaken: list[int] = []

    def overtake(done: int, total: int, _: Doing) -> None:
        if is_read(done, total) and not overtaken:
            overtaken.append(len(texts_of(memory)[None]))
            clock.advance(limits.import_lease_ttl_us + 1)
            with Memory.open(url, clock=clock) as other:
                overtaken.append(other.imports.run(ANA, slow_file).events_new)

    with Memory.open(url, clock=clock) as memory:
        report = memory.imports.run(ANA, slow_file, progress=overtake)
        assert overtaken == [8, 12]
        assert (report.events_new, report.events_known) == (8, 12)
        assert texts_of(memory) == {None: [f"line {at}" for at in range(1, 21)]}


@pytest.mark.invariant("INV-10")
def test_an_import_that_slept_past_its_lease_goes_on_when_nobody_took_it(
    url: str, slow_file: Path
) -> None:
    clock = HeldClock(START_US)
    with Memory.open(url, clock=clock) as memory:
        report = memory.imports.run(
            ANA, slow_file, progress=lambda *_: clock.advance(limits.import_lease_ttl_us + 1)
        )
        assert (report.events_new, report.skipped) == (20, {"progress": 1_048})
        assert texts_of(memory) == {None: [f"line {at}" for at in range(1, 21)]}


@pytest.mark.invariant("INV-10")
def test_an_import_leaves_a_session_to_the_writer_who_took_it_over(
    url: str, slow_file: Path
) -> None:
    clock = HeldClock(START_US)
    taken = []

    def take(done: int, total: int, _: Doing) -> None:
        if is_read(done, total) and not taken:
            clock.advance(limits.import_lease_ttl_us + 1)
            (session,) = memory.sessions.list(ANA).items
            taken.append(memory.sessions.lease(ANA, session.id))

    with Memory.open(url, clock=clock) as memory:
        report = memory.imports.run(ANA, slow_file, progress=take)
        assert report.skipped["refused_session_busy"] == 12
        assert texts_of(memory) == {None: [f"line {at}" for at in range(1, 9)]}
        taken[0].release()
        assert memory.imports.run(ANA, slow_file).events_new == 12
        assert texts_of(memory) == {None: [f"line {at}" for at in range(1, 21)]}


def test_an_import_that_waits_for_another_says_so(url: str, slow_file: Path) -> None:
    clock = HeldClock(START_US)
    doings: list[Doing] = []

    def tell(_done: int, _total: int, doing: Doing) -> None:
        doings.append(doing)
        if doing == "waiting":
            clock.advance(limits.import_lease_ttl_us + 1)

    def meet(done: int, total: int, _: Doing) -> None:
        if is_read(done, total) and not doings:
            with Memory.open(url, clock=clock) as other:
                assert other.imports.run(ANA, slow_file, progress=tell).events_new == 12

    with Memory.open(url, clock=clock) as memory:
        assert memory.imports.run(ANA, slow_file, progress=meet).events_new == 8
        assert doings.count("waiting") == 1
        assert texts_of(memory) == {None: [f"line {at}" for at in range(1, 21)]}
