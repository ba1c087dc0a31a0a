"""Imports that lose an acknowledgement or die at any commit: everything exactly once (INV-16)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import apsw
import psycopg
import pytest

from engrain import Memory, Scope
from engrain.contracts import faults, limits
from engrain.testing.clock import HeldClock
from services.exports import episode_texts, talk, texts_of, write_export

START_US = 1_767_225_600_000_000
POINTS = ("commit.before", "commit.after")
WHOLE = {f"talk {name}": [f"{name} says {at}: the kiln" for at in range(4)] for name in "ab"}


class Killed(BaseException):
    """Ends the process as far as the import can tell."""


@contextmanager
def failing(at: int, error: type[BaseException], *, for_good: bool) -> Iterator[list[str]]:
    """Raises at the `at`-th commit point, and at all that follow when it is `for_good`."""
    seen: list[str] = []

    def hook(name: str) -> None:
        if name in POINTS:
            seen.append(name)
            if len(seen) == at or (for_good and len(seen) > at):
                raise error

    faults.arm(hook)
    try:
        yield seen
    finally:
        faults.arm(None)


def assert_whole(memory: Memory, scope: Scope) -> None:
    assert texts_of(memory, scope) == WHOLE
    assert episode_texts(memory, scope) == {text: 1 for texts in WHOLE.values() for text in texts}
    assert len(memory.episodes.search(scope, "kiln")) == 8


@pytest.mark.invariant("INV-16")
def test_import_that_dies_at_any_commit_and_is_run_again_leaves_everything_exactly_once(
    url: str, folder: Path
) -> None:
    path = write_export(folder / "c.json", talk("a", 2), talk("b", 2))
    for at in count(1):
        scope, clock = Scope(org="acme", user=f"dies at {at}"), HeldClock(START_US)
        with Memory.open(url, clock=clock) as memory, failing(at, Killed, for_good=True):
            try:
                memory.imports.run(scope, path)
                break
            except Killed:
                pass
        clock.advance(limits.import_lease_ttl_us + 1)
        with Memory.open(url, clock=clock) as memory:
            memory.imports.run(scope, path)
            assert_whole(memory, scope)
            assert memory.imports.run(scope, path).events_new == 0
            assert_whole(memory, scope)
    assert at > 20, "every commit of the import was one of them"


@pytest.mark.invariant("INV-13")
@pytest.mark.invariant("INV-16")
def test_import_that_loses_any_one_acknowledgement_goes_on_by_itself(
    url: str, folder: Path
) -> None:
    path = write_export(folder / "c.json", talk("a", 2), talk("b", 2))
    lost = psycopg.OperationalError if url.startswith("postgresql") else apsw.IOError
    with Memory.open(url, clock=TickingClock(START_US)) as memory:
        for at in count(1):
            scope = Scope(org="acme", user=f"loses {at}")
            with failing(at, lost, for_good=False) as seen:
                report = memory.imports.run(scope, path)
            assert (report.sessions_new, report.failed, report.skipped) == (2, [], {})
            assert_whole(memory, scope)
            if len(seen) < at:
                break
    assert at > 20, "every commit of the import was one of them"


class TickingClock(HeldClock):
    """Time passes at each look, so that nobody waits for a lease in vain."""

    def now_us(self) -> int:
        self.advance(1_500_000)
        return super().now_us()
