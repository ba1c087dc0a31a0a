"""Measures of a ranking against the set of what it should have found. Each lies in 0 to 1."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from math import ceil, log2


def recall_at(depth: int, ranking: Sequence[Hashable], wanted: Collection[Hashable]) -> float:
    """The share of what is wanted that stands among the first `depth`."""
    return len(set(ranking[:depth]) & set(wanted)) / len(set(wanted))


def ndcg_at(depth: int, ranking: Sequence[Hashable], wanted: Collection[Hashable]) -> float:
    """Normalised discounted cumulative gain, with a gain of 1 for what is wanted.

    Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques (2002).
    """
    sought = set(wanted)
    gained = sum(
        1 / log2(place + 1) for place, one in enumerate(ranking[:depth], 1) if one in sought
    )
    ideal = sum(1 / log2(place + 1) for place in range(1, min(depth, len(sought)) + 1))
    return gained / ideal


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(1, ceil(share * len(ordered))) - 1]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
