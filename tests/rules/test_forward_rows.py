"""Forward rows: packed terms give back what was packed, and are found without unpacking."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.rules.forward_rows import (
    COUNT_MAX,
    LENGTH_MAX,
    find_in_packed,
    lengths_of_packed,
    pack_terms,
    unpack_terms,
)

term = st.text(
    st.characters(exclude_characters="\n\0", exclude_categories=("Cs", "Zs")),
    min_size=1,
    max_size=6,
)
counts = st.dictionaries(term, st.integers(1, COUNT_MAX), max_size=12)
lengths = st.integers(0, LENGTH_MAX)


@settings(max_examples=300)
@given(counts, lengths)
def test_what_was_packed_is_unpacked(packed, length):
    assert unpack_terms(pack_terms(packed, length)) == (packed, length)


@pytest.mark.invariant("INV-19")
@settings(max_examples=300)
@given(st.lists(st.tuples(counts, lengths), max_size=6), term)
def test_finding_in_packed_rows_is_looking_in_their_counts(rows, other):
    packed = [pack_terms(*row) for row in rows]
    assert list(lengths_of_packed(packed)) == [length for _, length in rows]
    for wanted in {other, *(each for held, _ in rows for each in held)}:
        expected = [(at, held[wanted]) for at, (held, _) in enumerate(rows) if wanted in held]
        assert list(find_in_packed(packed, wanted)) == expected


def test_a_header_is_never_taken_for_a_term():
    """Lengths and counts whose bytes would read as a line feed, a letter and a line feed."""
    for length in (0x0A0A, 0x610A, 0x0A61):
        often = {f"w{at}": count for at, count in enumerate((10, 97, 10, 65, 58))}
        row = pack_terms(often, length)
        for letter in ("a", "A", "\x81", "᤹"):
            assert list(find_in_packed([row], letter)) == []


def test_counts_and_lengths_are_cut_to_their_bounds_alike():
    row = pack_terms({"heron": 10_000, "canal": 1}, 10**6)
    assert unpack_terms(row) == ({"heron": COUNT_MAX, "canal": 1}, LENGTH_MAX)
    assert list(find_in_packed([row], "heron")) == [(0, COUNT_MAX)]
    assert list(lengths_of_packed([row])) == [LENGTH_MAX]


def test_two_bytes_of_a_length_that_look_like_a_term_are_none() -> None:
    looks_like_a = int.from_bytes(b"a\n", "little")
    rows = [pack_terms({"b": 1}, 1), pack_terms({"c": 1}, looks_like_a)]
    assert list(find_in_packed(rows, "a")) == []
    assert list(find_in_packed(rows, "c")) == [(1, 1)]
