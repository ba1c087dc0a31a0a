"""The shipped suite of leases."""

from engrain.testing.contracts.lease_races import TestLeaseRaces
from engrain.testing.contracts.leases import (
    TestClaiming,
    TestFencing,
    TestGuardDrop,
    TestJumpingClock,
    TestOpacity,
    TestRenewing,
)

__all__ = [
    "TestClaiming",
    "TestFencing",
    "TestGuardDrop",
    "TestJumpingClock",
    "TestLeaseRaces",
    "TestOpacity",
    "TestRenewing",
]
