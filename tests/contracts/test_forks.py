"""The shipped suite of forks."""

from engrain.testing.contracts.forgetting import TestForgettingWhileForking
from engrain.testing.contracts.forks import (
    TestForkedChain,
    TestForking,
    TestForkRaces,
    TestNewSnapshot,
    TestVerifiedPrefix,
)

__all__ = [
    "TestForgettingWhileForking",
    "TestForkRaces",
    "TestForkedChain",
    "TestForking",
    "TestNewSnapshot",
    "TestVerifiedPrefix",
]
