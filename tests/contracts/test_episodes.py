"""The shipped suite of episodes."""

from engrain.testing.contracts.episode_races import TestEpisodeRaces
from engrain.testing.contracts.episodes import (
    TestAppending,
    TestBounds,
    TestIds,
    TestListing,
    TestWatermark,
)
from engrain.testing.contracts.tombstones import TestForgetting

__all__ = [
    "TestAppending",
    "TestBounds",
    "TestEpisodeRaces",
    "TestForgetting",
    "TestIds",
    "TestListing",
    "TestWatermark",
]
