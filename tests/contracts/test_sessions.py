"""The shipped suite of sessions."""

from engrain.testing.contracts.sessions import (
    TestListing,
    TestReading,
    TestSessionRaces,
    TestStarting,
    TestTitles,
)

__all__ = ["TestListing", "TestReading", "TestSessionRaces", "TestStarting", "TestTitles"]
