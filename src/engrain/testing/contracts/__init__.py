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

from engrain.contracts import limits
from engrain.contracts.events import StoredEvent, Turn
from engrain.contracts.leases import SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.sessions import Session
from engrain.contracts.transcript import AppendReceipt
from engrain.contracts.workspace import DEFAULT_WORKSPACE
from engrain.testing.clock import HeldClock
from engrain.testing.engines import Engine, Stores, open_stores
from engrain.testing.races import Racers

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


@pytest.fixture(scope="session")
def racers() -> Iterator[Racers]:
    """Six processes that every race of the run uses."""
    with Racers() as started:
        yield started


@pytest.fixture
def race(racers: Racers, shared_engine: Engine) -> Iterator[Racers]:
    """Six processes that have one empty database open, under the engine's own time."""
    with racers.on(shared_engine) as ready:
        yield ready


@pytest.fixture
def held_race(racers: Racers, shared_engine: Engine) -> Iterator[Racers]:
    """Six processes that have one empty database open, each under a clock held at `START_US`."""
    with racers.on(shared_engine, now_us=START_US) as ready:
        yield ready


def begin(stores: Stores, scope: Scope = ANA, title: str | None = None) -> Session:
    """A new session in the workspace `default`."""
    return stores.sessions.start(scope, DEFAULT_WORKSPACE, title=title)


def hold(
    stores: Stores, session: Session, scope: Scope = ANA, ttl_us: int = limits.lease_ttl_us
) -> SessionLease:
    """A lease that has replayed the session, so that it may append."""
    lease = stores.leases.claim(scope, session.id, ttl_us=ttl_us)
    for _ in stores.transcript.replay(lease):
        pass
    return lease


def say(stores: Stores, lease: SessionLease, text: str, reply: str | None = None) -> AppendReceipt:
    """One turn: what a user said and what the agent replied."""
    return stores.transcript.append_turn(lease, Turn.said(text, reply=reply).events)


def history(stores: Stores, session: Session, scope: Scope = ANA) -> list[StoredEvent]:
    """Every event of the session, read without a lease."""
    return list(stores.transcript.iter_events(scope, session.id))
