"""Ranking: BM25 over the scope's own statistics, each turn together with its neighbours.

The same postings give the same order on every engine, settled or not (INV-19): nothing outside the
scope is known here, and what is equal is ordered by key, the latest first.

BM25: Robertson and Zaragoza, The Probabilistic Relevance Framework (2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest
from math import log
from typing import Final

from engrain.contracts.terms import Postings, Ranked, ScopeTerms

K1: Final = 1.2
B: Final = 0.5
NEXT: Final = 0.4
SECOND: Final = 0.2


def rank(
    query: Sequence[str],
    statistics: ScopeTerms,
    postings: Mapping[str, Postings],
    *,
    limit: int,
) -> list[Ranked]:
    """The best `limit` episodes, best first."""
    found = [(term, postings[term]) for term in query if term in postings]
    own = _own_scores(found, statistics)
    scores = _with_neighbours(own)
    best = nlargest(limit, scores.items(), key=lambda item: (item[1], item[0]))
    return [Ranked(key, score, _terms_of(key, found)) for key, score in best]


def _own_scores(found: Sequence[tuple[str, Postings]], statistics: ScopeTerms) -> dict[int, float]:
    average = statistics.total_length / statistics.episode_count
    steady, by_length = K1 * (1 - B), K1 * B / average
    scores: dict[int, float] = {}
    for _, one in found:
        held = len(one.keys)
        rarity = log(1 + (statistics.episode_count - held + 0.5) / (held + 0.5)) * (K1 + 1)
        for key, count, length in zip(one.keys, one.counts, one.lengths, strict=True):
            gain = rarity * count / (count + steady + by_length * length)
            scores[key] = scores.get(key, 0.0) + gain
    return scores


def _with_neighbours(own: Mapping[int, float]) -> dict[int, float]:
    scores = dict(own)
    for key, score in own.items():
        for at, share in ((key - 1, NEXT), (key + 1, NEXT), (key - 2, SECOND), (key + 2, SECOND)):
            if at in own:
                scores[at] += share * score
    return scores


def _terms_of(key: int, found: Sequence[tuple[str, Postings]]) -> tuple[str, ...]:
    return tuple(term for term, one in found if key in one.keys)
