"""The behaviour suite of each store, for every engine.

A module a noun, in it classes of tests that ask for fixtures alone. To run them on an engine of
your own, write a `conftest.py` that imports the fixtures below, add a fixture `engine` that gives
an `engrain.testing.engines.Engine`, a fixture `shared_engine` that gives one with a `url`, and
import the classes into a test module:

    from engrain.testing.contracts.sessions import TestListing, TestStarting

Call `pytest.register_assert_rewrite("engrain.testing.contracts")` first, so that a failed
assertion shows its values.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engrain.contracts.scope import Scope
from engrain.testing.clock import HeldClock
from engrain.testing.engines import Engine, Stores, open_stores

START_US = 1_767_225_600_000_000
"""Where the held clock begins: 2026-01-01, midnight UTC."""

ANA = Scope(org="acme", user="ana")
BEN = Scope(org="acme", user="ben")


@pytest.fixture
def clock() -> HeldClock:
    """A clock that moves only when a test says so."""
    return HeldClock(START_US)


@pytest.fixture
def stores(engine: Engine, clock: HeldClock) -> Iterator[Stores]:
    """The stores of an empty database under the held clock."""
    with open_stores(engine, clock) as opened:
        yield opened
