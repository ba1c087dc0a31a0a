"""The shipped suite of operation ids."""

from engrain.testing.contracts.operation_races import TestOperationRaces
from engrain.testing.contracts.operations import (
    TestAge,
    TestLostAcknowledgement,
    TestMismatch,
    TestReceipts,
    TestRepeating,
    author,
)

__all__ = [
    "TestAge",
    "TestLostAcknowledgement",
    "TestMismatch",
    "TestOperationRaces",
    "TestReceipts",
    "TestRepeating",
    "author",
]
