"""The shipped suite of snapshots."""

from engrain.testing.contracts.snapshots import (
    TestAuthority,
    TestBinding,
    TestReadingSnapshots,
    TestSnapshotBounds,
    TestSnapshotRaces,
)

__all__ = [
    "TestAuthority",
    "TestBinding",
    "TestReadingSnapshots",
    "TestSnapshotBounds",
    "TestSnapshotRaces",
]
