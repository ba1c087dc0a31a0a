"""The shipped suite of the search index."""

from engrain.testing.contracts.episode_histories import TestHistories
from engrain.testing.contracts.terms import (
    TestErasingTerms,
    TestIndexRaces,
    TestSearching,
    TestSettling,
)
from engrain.testing.contracts.twins import TestTwins

__all__ = [
    "TestErasingTerms",
    "TestHistories",
    "TestIndexRaces",
    "TestSearching",
    "TestSettling",
    "TestTwins",
]
