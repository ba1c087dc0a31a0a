"""The shipped suite of the transcript."""

from engrain.testing.contracts.kills import TestKilledWriters
from engrain.testing.contracts.transcript import (
    TestAppending,
    TestBounds,
    TestReplayRule,
    TestWhatMayEnter,
)
from engrain.testing.contracts.transcript_races import TestAppendRaces

__all__ = [
    "TestAppendRaces",
    "TestAppending",
    "TestBounds",
    "TestKilledWriters",
    "TestReplayRule",
    "TestWhatMayEnter",
]
