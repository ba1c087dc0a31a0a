"""Ranking: BM25 of each turn, and of the turn among its neighbours.

The same postings give the same order on every engine, settled or not (INV-19): nothing outside the
scope is known here, and equal scores are ordered by key, the latest first.

BM25: Robertson and Zaragoza, The Probabilistic Relevance Framework (2009). The weights are those of
docs/decisions/0007-ranking.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop
from itertools import chain
from math import log
from typing import Final

from engrain.contracts.terms import Postings, Ranked, ScopeTerms

SATURATION: Final = 0.9
"""BM25's k1: how soon a term that occurs again says nothing new."""
LENGTH_SHARE: Final = 0.25
"""BM25's b: how much a long turn's terms count less. Windows are not corrected for length."""
REACH: Final = 2
"""A window is a turn with this many before and after it, in its session."""
WINDOW_SHARE: Final = 0.65
"""How much of the score is the window's; the rest is the turn's own."""
COMMON: Final = 2 * REACH + 1
"""A term that more than one turn in this many holds may stand in every window: it tells none apart,
and is left out of their scores. So a term's windows cost no more than the scope has turns."""
FEW: Final = 20
"""So many turns are never too many: in a small scope too, a hit's neighbours are ranked."""

Scores = dict[int, float]


def rank(
    query: Sequence[str],
    statistics: ScopeTerms,
    postings: Mapping[str, Postings],
    *,
    with_neighbours: bool = False,
) -> Iterator[Ranked]:
    """Episode keys, best first; scores lie in 0 to 1.

    Ranks the turns that hold a term of the query; with `with_neighbours` also those beside them,
    which name no term, and may be keys that no episode has: the caller skips these.
    """
    found = [(term, postings[term]) for term in query if term in postings]
    if not found:
        return
    own, windows = _score(found, statistics)
    heap = _fuse(own, windows, {**windows, **own} if with_neighbours else own)
    heapify(heap)
    holders = [(term, frozenset(one.keys)) for term, one in found]
    while heap:
        score, key = heappop(heap)
        held = tuple(term for term, keys in holders if -key in keys)
        yield Ranked(-key, -score, held)


def _score(found: Sequence[tuple[str, Postings]], statistics: ScopeTerms) -> tuple[Scores, Scores]:
    """BM25 of turns and of windows, each under the rarity of its terms among the turns."""
    episodes = statistics.episode_count
    average = statistics.total_length / episodes
    own: Scores = {}
    windows: Scores = {}
    for _, one in found:
        held = len(one.keys)
        rarity = log(1 + (episodes - held + 0.5) / (held + 0.5)) * (SATURATION + 1)
        _add_turns(own, one, rarity, average)
        if held <= max(episodes // COMMON, FEW):
            _add_windows(windows, one, rarity)
    return own, windows


def _add_turns(scores: Scores, one: Postings, rarity: float, average: float) -> None:
    steady, by_length = SATURATION * (1 - LENGTH_SHARE), SATURATION * LENGTH_SHARE / average
    score_of = scores.get
    for key, count, length in zip(one.keys, one.counts, one.lengths, strict=True):
        gain = rarity * count / (count + steady + by_length * length)
        scores[key] = score_of(key, 0.0) + gain


def _add_windows(scores: Scores, one: Postings, rarity: float) -> None:
    near = (range(key - REACH, key + REACH + 1) for key in one.keys)
    held = Counter(chain.from_iterable(near))
    for key, count in zip(one.keys, one.counts, strict=True):
        if count > 1:
            held.update(dict.fromkeys(range(key - REACH, key + REACH + 1), count - 1))
    gains = [rarity * count / (count + SATURATION) for count in range(max(held.values()) + 1)]
    score_of = scores.get
    for key, count in held.items():
        scores[key] = score_of(key, 0.0) + gains[count]


def _fuse(own: Scores, windows: Scores, keys: Iterable[int]) -> list[tuple[float, int]]:
    """Each measured by its best, then added: (-score, -key), so that the least is the best."""
    own_share = (WINDOW_SHARE - 1) / max(own.values())
    window_share = WINDOW_SHARE / max(windows.values(), default=1.0)
    own_of, window_of = own.get, windows.get
    return [
        (own_share * own_of(key, 0.0) - window_share * window_of(key, 0.0), -key) for key in keys
    ]
