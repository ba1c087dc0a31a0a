"""Twins: near-identical texts share a normal form, others do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engrain.rules.terms import terms
from engrain.rules.twins import similarity, twin_text

any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)
sets = st.frozensets(st.sampled_from("abcdef"), max_size=5)


@pytest.mark.invariant("INV-25")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I moved to Porto.", "i moved  to porto"),
        ("I moved to Porto!", "“I moved to Porto”…"),
        ("I don't know", "I DON’T know\n"),
        ("ｆｕｌｌ width", "full width"),
        ("* first\n* second", "first second"),
        ("soft\u00adhyphen", "softhyphen"),
        ("我搬到了北京。", "我搬到了北京"),
        ("-- see you --", "See you,"),
    ],
)
def test_case_space_and_punctuation_around_words_make_no_difference(one, other):
    assert twin_text(one) == twin_text(other)


@pytest.mark.invariant("INV-25")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I moved to Porto", "I moved to Lisbon"),
        ("it costs 3.14", "it costs 314"),
        ("minha avó", "minha avô"),
        ("You like it?", "You like it."),
        ("I write C", "I write C++"),
        ("I write C#", "I write C++"),
        ("👍", "😢"),
        ("!!!", "..."),
        ("5 apples", "-5 apples"),
        ("+5", "5"),
        ("50%", "50"),
        ("we can", "we cant"),
        ("", "a"),
    ],
)
def test_what_changes_the_meaning_makes_a_difference(one, other):
    assert twin_text(one) != twin_text(other)


@given(any_text)
def test_the_normal_form_of_a_normal_form_is_itself(text):
    assert twin_text(twin_text(text)) == twin_text(text)


@given(sets, sets)
def test_similarity_is_symmetric_and_lies_between_none_and_all(one, other):
    assert similarity(one, other) == similarity(other, one)
    assert 0 <= similarity(one, other) <= 1
    assert (similarity(one, other) == 1) == (one == other and bool(one))
    assert (similarity(one, other) == 0) == (not one & other)


def test_texts_without_terms_are_not_alike():
    assert similarity(frozenset(terms("👍")), frozenset(terms("😢"))) == 0.0
