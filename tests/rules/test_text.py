"""The text rule: refused, repaired or cut, but never stored broken."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.contracts.errors import InvalidValue, LimitExceeded
from engrain.contracts.text import (
    cut_text,
    is_clean_text,
    repair_text,
    require_short_text,
    require_text,
)

any_text = st.text(
    st.one_of(st.characters(exclude_categories=()), st.sampled_from("\0\ud83d\ude00\udfff a")),
    max_size=40,
)
clean_text = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


@pytest.mark.invariant("INV-05")
@settings(max_examples=300)
@given(any_text)
def test_repaired_text_is_clean_and_repairing_it_again_changes_nothing(text):
    repaired, was_repaired = repair_text(text)
    assert is_clean_text(repaired)
    assert was_repaired == (not is_clean_text(text))
    assert repair_text(repaired) == (repaired, False)


@pytest.mark.invariant("INV-05")
@settings(max_examples=300)
@given(any_text)
def test_clean_means_encodable_without_nul(text):
    try:
        is_sound = b"\0" not in text.encode()
    except UnicodeEncodeError:
        is_sound = False
    assert is_clean_text(text) == is_sound


@pytest.mark.invariant("INV-05")
@given(clean_text)
def test_clean_text_passes_untouched(text):
    assert repair_text(text) == (text, False)
    assert require_text(text, "text") == text


@pytest.mark.invariant("INV-05")
@pytest.mark.parametrize(
    ("text", "repaired"),
    [("a\0b", "a�b"), ("\ud83d\ude00", "😀"), ("\ud83dx", "�x"), ("x\ude00\ud83d", "x��")],
)
def test_bad_code_points_become_replacement_characters_and_pairs_are_joined(text, repaired):
    assert repair_text(text) == (repaired, True)
    with pytest.raises(InvalidValue):
        require_text(text, "text")


@given(clean_text, st.integers(0, 200))
def test_cut_text_is_the_longest_prefix_that_fits(text, bytes_max):
    cut = cut_text(text, bytes_max)
    assert text.startswith(cut)
    assert len(cut.encode()) <= bytes_max
    if cut != text:
        assert len(text[: len(cut) + 1].encode()) > bytes_max


def test_short_text_is_neither_blank_nor_long():
    assert require_short_text("é", "title", 2) == "é"
    for blank in ("", " ", "\n\t", "\u3000"):
        with pytest.raises(InvalidValue):
            require_short_text(blank, "title", 10)
    with pytest.raises(LimitExceeded) as refused:
        require_short_text("éé", "title", 3)
    assert (refused.value.limit, refused.value.most) == ("title_bytes_max", 3)
