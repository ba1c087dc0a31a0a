"""Ranking: BM25 of turns and windows, from the scope's own postings alone."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice, pairwise
from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.contracts.terms import Postings, ScopeTerms, pack_episode_key
from engrain.rules.ranking import (
    COMMON,
    FEW,
    LENGTH_SHARE,
    REACH,
    SATURATION,
    WINDOW_SHARE,
    rank,
)

Episodes = dict[int, list[str]]


def index(episodes: Episodes, *, shuffled: int | None = None):
    """(statistics, postings) of episodes given as their terms."""
    order = list(episodes)
    if shuffled is not None:
        random.Random(shuffled).shuffle(order)
    rows: dict[str, list[tuple[int, int, int]]] = {}
    for key in order:
        for term, count in Counter(episodes[key]).items():
            rows.setdefault(term, []).append((key, count, len(episodes[key])))
    postings = {term: Postings(*zip(*each, strict=True)) for term, each in rows.items()}
    return ScopeTerms(len(episodes), sum(map(len, episodes.values()))), postings


def ranked(query: str, episodes: Episodes, **choice):
    return list(rank(query.split(), *index(episodes), **choice))


def session(number: int, *texts: str) -> Episodes:
    return {pack_episode_key(number, at): text.split() for at, text in enumerate(texts, 1)}


def key(number: int, at: int) -> int:
    return pack_episode_key(number, at)


FILLER = session(9, *(f"filler{at} words that nobody asks for" for at in range(40)))

episodes_of = st.dictionaries(
    st.tuples(st.integers(1, 3), st.integers(1, 12)).map(lambda place: key(*place)),
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6),
    min_size=1,
    max_size=20,
)


def test_rare_terms_weigh_more_than_frequent_ones():
    talk = session(1, "heron", *["canal"] * 3) | session(2, "canal heron") | FILLER
    assert ranked("heron canal", talk)[0].key == key(2, 1)
    apart = session(1, "canal") | session(2, "heron") | session(3, "canal") | FILLER
    assert ranked("heron canal", apart)[0].key == key(2, 1)


def test_a_turn_is_lifted_by_its_neighbours():
    talk = session(1, "heron", "canal") | session(2, "heron", *["quiet"] * 4, "canal") | FILLER
    found = [one.key for one in ranked("heron canal", talk)]
    assert set(found[:2]) == {key(1, 1), key(1, 2)}


def test_neighbours_end_after_two_turns_and_at_the_session():
    talk = session(1, "heron", "x", "x", "canal") | session(2, "heron", "x", "canal") | FILLER
    found = [one.key for one in ranked("heron canal", talk)]
    assert set(found[:2]) == {key(2, 1), key(2, 3)}
    split = session(1, "heron") | session(2, "canal") | FILLER
    scores = {one.key: one.score for one in ranked("heron canal", split)}
    alone = {one.key: one.score for one in ranked("heron", session(1, "heron") | FILLER)}
    assert scores[key(1, 1)] == alone[key(1, 1)] == 1.0


def test_a_shorter_turn_with_the_same_terms_comes_first():
    talk = session(1, "heron " + "word " * 30) | session(2, "heron waits") | FILLER
    assert [one.key for one in ranked("heron", talk)] == [key(2, 1), key(1, 1)]


def test_each_hit_names_the_terms_that_it_holds_itself():
    talk = session(1, "heron canal", "heron") | FILLER
    held = {one.key: one.terms for one in ranked("canal heron nothing", talk)}
    assert held == {key(1, 1): ("canal", "heron"), key(1, 2): ("heron",)}


def test_neighbours_that_hold_no_term_are_ranked_only_when_asked_for():
    talk = session(1, "what did the doctor say", "to rest a week") | FILLER
    assert [one.key for one in ranked("doctor", talk)] == [key(1, 1)]
    both = ranked("doctor", talk, with_neighbours=True)
    assert both[0].key == key(1, 1)
    assert (key(1, 2), ()) in [(one.key, one.terms) for one in both]


def test_a_scope_of_one_exchange_gives_the_answer_beside_the_question():
    talk = session(1, "which tram goes to graça", "the 28e")
    found = ranked("tram graça", talk, with_neighbours=True)
    assert [(one.key, one.terms) for one in found if one.key in talk] == [
        (key(1, 1), ("tram", "graça")),
        (key(1, 2), ()),
    ]


@pytest.mark.parametrize("held", [FEW, FEW + 1])
def test_a_term_that_many_and_most_turns_hold_stands_in_no_window(held: int):
    talk = session(1, *["heron"] * held, "quiet")
    found = [one.key for one in ranked("heron", talk, with_neighbours=True)]
    assert (key(1, held + 1) in found) == (held == FEW)


def test_what_is_asked_for_in_vain_finds_nothing():
    assert ranked("heron", FILLER) == []
    assert list(rank([], ScopeTerms(0, 0), {})) == []
    assert list(rank(["heron"], ScopeTerms(0, 0), {})) == []


@pytest.mark.invariant("INV-19")
def test_equal_scores_are_ordered_by_place_the_latest_first():
    talk = session(1, "heron", *["x"] * 5, "heron") | session(2, "heron") | FILLER
    assert [one.key for one in ranked("heron", talk)] == [key(2, 1), key(1, 7), key(1, 1)]


@pytest.mark.invariant("INV-19")
@settings(max_examples=200, deadline=None)
@given(episodes_of, st.integers(0, 5), st.booleans())
def test_the_order_of_postings_changes_nothing(episodes, seed, with_neighbours):
    statistics, postings = index(episodes)
    _, shuffled = index(episodes, shuffled=seed)
    query = ["a", "b", "c"]
    one = list(rank(query, statistics, postings, with_neighbours=with_neighbours))
    other = list(rank(query, statistics, shuffled, with_neighbours=with_neighbours))
    assert one == other


@settings(max_examples=200, deadline=None)
@given(episodes_of)
def test_scores_follow_the_formula_and_fall(episodes):
    """A second writing of the rule, straight from its definition."""
    query = ["a", "b"]
    expected = by_definition(query, episodes)
    found = ranked(" ".join(query), episodes)
    assert {one.key: pytest.approx(one.score) for one in found} == expected
    assert all(0 <= one.score <= 1 + 1e-9 for one in found)
    assert all(a.score >= b.score for a, b in pairwise(found))
    assert list(islice(rank(query, *index(episodes)), 3)) == found[:3]


def by_definition(query: list[str], episodes: Episodes) -> dict[int, float]:
    count, average = len(episodes), sum(map(len, episodes.values())) / len(episodes)
    own = dict.fromkeys(episodes, 0.0)
    window = {near + step: 0.0 for near in episodes for step in range(-REACH, REACH + 1)}
    for term in query:
        held = sum(term in words for words in episodes.values())
        if not held:
            continue
        rarity = log(1 + (count - held + 0.5) / (held + 0.5))
        for at, words in episodes.items():
            norm = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * len(words) / average)
            own[at] += rarity * words.count(term) / (words.count(term) + norm)
        for at in window if held <= FEW or held * COMMON <= count else ():
            near = [episodes.get(at + step, []) for step in range(-REACH, REACH + 1)]
            said = sum(words.count(term) for words in near)
            window[at] += rarity * said / (said + SATURATION)
    best, best_window = max(own.values()), max(window.values())
    return {
        at: (1 - WINDOW_SHARE) * own[at] / best
        + (WINDOW_SHARE * window[at] / best_window if best_window else 0.0)
        for at in episodes
        if own[at] > 0
    }
