"""The shipped suite of recall."""

from engrain.testing.contracts.recall import TestBlock, TestBudget, TestRecordedRecall

__all__ = ["TestBlock", "TestBudget", "TestRecordedRecall"]
