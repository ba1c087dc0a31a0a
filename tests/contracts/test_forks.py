"""The shipped suite of forks."""

from engrain.testing.contracts.forks import (
    TestForkedChain,
    TestForking,
    TestForkRaces,
    TestNewSnapshot,
    TestVerifiedPrefix,
)

__all__ = [
    "TestForkRaces",
    "TestForkedChain",
    "TestForking",
    "TestNewSnapshot",
    "TestVerifiedPrefix",
]
