"""Races of processes that write to one database, found by name from fresh processes."""

from __future__ import annotations

from engrain.testing.contracts import begin, hold, say
from engrain.testing.races import Racer

TURNS = 100


def prepare(racer: Racer) -> None:
    racer.lease = hold(racer.stores, begin(racer.stores))


def write(racer: Racer) -> None:
    assert racer.lease is not None
    for _ in range(TURNS):
        say(racer.stores, racer.lease, "mine")
