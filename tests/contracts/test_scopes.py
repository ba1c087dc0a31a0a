"""The shipped suite of scopes."""

from engrain.testing.contracts.scopes import TestKeys, TestNaming, TestScopeRaces

__all__ = ["TestKeys", "TestNaming", "TestScopeRaces"]
