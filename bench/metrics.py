"""Measures of a ranking against the set of what it should have found. Each lies in 0 to 1."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from math import log2


def recall_at(depth: int, ranking: Sequence[Hashable], wanted: Collection[Hashable]) -> float:
    """The share of what is wanted that stands among the first `depth`."""
    sought = set(wanted)
    return len(sought.intersection(ranking[:depth])) / len(sought)


def ndcg_at(depth: int, ranking: Sequence[Hashable], wanted: Collection[Hashable]) -> float:
    """Normalised discounted cumulative gain; what is wanted gains 1, and nothing gains twice.

    Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques (2002).
    """
    sought = set(wanted)
    best = sum(_discount(place) for place in range(1, min(depth, len(sought)) + 1))
    gained = 0.0
    for place, one in enumerate(ranking[:depth], 1):
        if one in sought:
            sought.remove(one)
            gained += _discount(place)
    return gained / best


def _discount(place: int) -> float:
    return 1 / log2(place + 1)
