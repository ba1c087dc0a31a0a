"""The shipped suites of isolation."""

from engrain.testing.contracts.foreign import TestForeign
from engrain.testing.contracts.isolation import TestDifferential

__all__ = ["TestDifferential", "TestForeign"]
