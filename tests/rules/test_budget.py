"""A block never costs more than its budget, whoever counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.contracts.recall import FramedItem, Omission
from engrain.rules.budget import Candidate, estimate_tokens, fill
from engrain.rules.framing import frame, frame_head, frame_item, frame_tail

COUNTERS = {
    "thirds": lambda text: len(text.encode()) // 3 + 1,
    "words": lambda text: len(text.split()),
    "joining costs more": lambda text: text.count("\n") ** 2,
    "shrinks when long": lambda text: 7 if len(text) > 400 else len(text),
    "jumps": lambda text: (len(text) * 7919) % 211,
    "nothing": lambda text: 0,
    "constant": lambda text: 10,
    "huge": lambda text: 10**9,
    "own": estimate_tokens,
}


OVERHEAD = estimate_tokens(frame_head("abcd") + frame_tail("abcd"))


def render(items):
    return frame(items, "abcd")


def make(position, text, group="a", tokens=None):
    framed = FramedItem(heading="2023-05-08 Ana", text=text)
    cost = estimate_tokens(frame_item(1, framed)) if tokens is None else tokens
    return Candidate(position=position, tokens=cost, group=group, framed=framed)


candidates = st.lists(
    st.tuples(st.text(max_size=60), st.sampled_from("abc"), st.integers(0, 200)), max_size=12
).map(lambda rows: [make(n, text, group, cost) for n, (text, group, cost) in enumerate(rows)])


@pytest.mark.invariant("INV-22")
@pytest.mark.parametrize("name", COUNTERS)
@settings(max_examples=60)
@given(given_candidates=candidates, budget=st.integers(-5, 600))
def test_the_exact_count_of_a_block_never_exceeds_the_budget(name, given_candidates, budget):
    counter = COUNTERS[name]
    filling = fill(given_candidates, budget, render, counter)
    if filling.text:
        assert filling.tokens == counter(filling.text) <= budget
    else:
        assert (filling.tokens, filling.chosen) == (0, ())
    assert filling.text == render([each.framed for each in filling.chosen])
    positions = [each.position for each in filling.chosen]
    assert positions == sorted(set(positions))
    left = sum(omission.count for omission in filling.left_out)
    assert left + len(positions) == len(given_candidates)


@pytest.mark.invariant("INV-22")
def test_a_budget_of_zero_gives_an_empty_block_that_reports_what_it_left_out():
    filling = fill([make(0, "hello"), make(1, "world")], 0, render, estimate_tokens)
    assert (filling.text, filling.tokens) == ("", 0)
    assert filling.left_out == (Omission("budget", 2),)


def test_an_item_too_large_is_skipped_for_smaller_ones_after_it():
    given_candidates = [make(0, "short"), make(1, "word " * 500), make(2, "also short")]
    filling = fill(given_candidates, 120, render, estimate_tokens)
    assert [each.position for each in filling.chosen] == [0, 2]
    assert filling.left_out == (Omission("budget", 1),)


def test_one_session_gets_at_most_its_share_while_others_compete():
    texts = ["word " * 20] * 10
    rows = [make(n, text, "loud") for n, text in enumerate(texts)]
    rows += [make(10, "quiet " * 5, "quiet")]
    filling = fill(rows, 400, render, estimate_tokens, overhead_tokens=OVERHEAD)
    loud = sum(each.tokens for each in filling.chosen if each.group == "loud")
    assert 100 < loud <= 200
    assert 10 in [each.position for each in filling.chosen]
    assert any(each.reason == "session_share" for each in filling.left_out)


def test_a_single_session_may_fill_the_whole_budget():
    rows = [make(n, "word " * 20) for n in range(10)]
    filling = fill(rows, 400, render, estimate_tokens, overhead_tokens=OVERHEAD)
    assert sum(each.tokens for each in filling.chosen) > 300
    assert all(each.reason == "budget" for each in filling.left_out)


def test_room_that_stored_costs_overestimate_is_used():
    def counter(text):
        return estimate_tokens(text) // 2

    rows = [make(n, f"sentence number {n} of the talk") for n in range(60)]
    filling = fill(rows, 300, render, counter, overhead_tokens=OVERHEAD // 2)
    assert filling.tokens > 240


def test_few_exact_counts_are_enough():
    calls = []

    def counter(text):
        calls.append(text)
        return len(text) // 2

    fill([make(n, "some words here") for n in range(200)], 800, render, counter)
    assert len(calls) <= 12


def test_what_the_counter_raises_goes_through():
    def counter(text):
        raise KeyError("no model")

    with pytest.raises(KeyError):
        fill([make(0, "x")], 100, render, counter)


@pytest.mark.invariant("INV-22")
@pytest.mark.parametrize("answer", [float("nan"), float("inf"), 10**30])
def test_a_counter_that_answers_no_sound_number_gives_an_empty_block(answer):
    rows = [make(n, "some words here") for n in range(20)]
    filling = fill(rows, 100, render, lambda _text: answer)
    assert (filling.text, filling.tokens, filling.chosen) == ("", 0, ())


@pytest.mark.invariant("INV-22")
@settings(max_examples=300)
@given(st.text(st.characters(exclude_categories=()), max_size=50), st.text(max_size=50))
def test_a_joined_text_is_estimated_at_no_more_than_its_parts(left, right):
    assert estimate_tokens(left + right) <= estimate_tokens(left) + estimate_tokens(right)


@pytest.mark.parametrize(
    ("text", "real"),  # cl100k_base counts
    [
        ("The quick brown fox jumps over the lazy dog.", 10),
        ("for i in range(10):\n    print(i)\n", 11),
        ("2023-05-08T14:32:00Z", 13),
        ("", 0),
    ],
)
def test_estimates_lie_above_a_real_tokenizer(text, real):
    assert real <= estimate_tokens(text) <= 2 * real
