"""Cursors hide what they hold and work in one place alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.contracts.errors import InvalidValue
from engrain.rules.cursors import seal, unseal

SECRET = b"s" * 32
field = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30),
)


@settings(max_examples=200)
@given(st.lists(field, max_size=6).map(tuple))
def test_a_cursor_gives_back_its_fields_and_is_always_the_same(fields):
    cursor = seal("episodes", fields, SECRET)
    assert unseal("episodes", cursor, SECRET) == fields
    assert seal("episodes", fields, SECRET) == cursor


def test_a_cursor_works_neither_in_another_list_nor_in_another_scope():
    cursor = seal("episodes", (1, 2), SECRET)
    for kind, secret in (("sessions", SECRET), ("episodes", b"t" * 32)):
        with pytest.raises(InvalidValue, match="cursor"):
            unseal(kind, cursor, secret)


def test_every_changed_character_is_refused():
    cursor = seal("episodes", (123456789, "x"), SECRET)
    for place, char in enumerate(cursor):
        forged = cursor[:place] + ("A" if char != "A" else "B") + cursor[place + 1 :]
        with pytest.raises(InvalidValue):
            unseal("episodes", forged, SECRET)


@pytest.mark.parametrize(
    "cursor", ["", "A", "=", "é", "\ud800", "A" * 5000, "A" * 22, "A" * 64, "a b", "\0", "____"]
)
def test_a_text_that_was_never_a_cursor_is_refused(cursor):
    with pytest.raises(InvalidValue):
        unseal("episodes", cursor, SECRET)


def test_white_space_and_padding_make_no_second_spelling():
    cursor = seal("episodes", (1,), SECRET)
    for other in (cursor + "=", cursor + "\n", " " + cursor, cursor[:5] + "\n" + cursor[5:]):
        with pytest.raises(InvalidValue):
            unseal("episodes", other, SECRET)


def test_neighbouring_keys_look_unrelated_and_equally_long():
    one, two, large = (seal("e", (n,), SECRET) for n in (7, 8, 9_000_000_000))
    assert len(one) == len(two) == len(large)
    same = sum(a == b for a, b in zip(one, two, strict=True))
    assert same < len(one) // 3


@pytest.mark.parametrize("fields", [(True,), (1.5,), (2**63,), ("a\0",), ("\ud800",), (None,)])
def test_fields_outside_the_rule_are_refused(fields):
    with pytest.raises(InvalidValue):
        seal("e", fields, SECRET)
