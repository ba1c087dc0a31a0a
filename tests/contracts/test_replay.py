"""The shipped suite of reading a transcript."""

from engrain.testing.contracts.replay import (
    TestPaging,
    TestReplayBounds,
    TestReplaying,
    TestSources,
)

__all__ = ["TestPaging", "TestReplayBounds", "TestReplaying", "TestSources"]
