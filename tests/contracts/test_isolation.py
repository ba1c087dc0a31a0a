"""The shipped suite of isolation."""

from engrain.testing.contracts.isolation import TestDifferential, TestForeign

__all__ = ["TestDifferential", "TestForeign"]
