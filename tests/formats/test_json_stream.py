"""Slicing streams into documents: any chunking, any size, any tear."""

from __future__ import annotations

import io
import json
import time
import tracemalloc
from typing import BinaryIO, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.contracts import limits
from engrain.contracts.imports import Skipped
from engrain.formats import json_stream
from engrain.formats.json_stream import Piece, iter_elements, iter_lines


class Dripping:
    """A stream that gives its bytes in pieces of one size, whatever is asked for."""

    def __init__(self, data: bytes, size: int) -> None:
        self._stream, self._size = io.BytesIO(data), size

    def read(self, _size: int = -1) -> bytes:
        return self._stream.read(self._size)


class LongText:
    """An array whose first element is an object with one text of 200 MB; its second is `{}`."""

    def __init__(self) -> None:
        self._chunks = iter([b'[{"a":"', *[b"x" * limits.MIB] * 200, b'"},{"b":1}]'])

    def read(self, _size: int = -1) -> bytes:
        return next(self._chunks, b"")


def stream(data: bytes, size: int = 1 << 20) -> BinaryIO:
    return cast(BinaryIO, Dripping(data, size))


def sliced(data: bytes, size: int = 1 << 20, bytes_max: int = 1_000) -> list[bytes | str]:
    """Element bytes, or the word of a skip."""
    pieces = iter_elements(stream(data, size), bytes_max=bytes_max)
    return [p.data if isinstance(p, Piece) else p.why for p in pieces]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(values, max_size=5), st.integers(1, 40), st.booleans(), st.booleans())
def test_every_chunking_gives_the_elements_of_the_array(
    elements: list[object], size: int, is_ascii: bool, is_indented: bool
) -> None:
    text = json.dumps(elements, ensure_ascii=is_ascii, indent=2 if is_indented else None)
    found = sliced(text.encode(errors="surrogatepass"), size, bytes_max=100_000)
    assert [json.loads(data) for data in found] == elements


@pytest.mark.parametrize("indent", [None, 1])
def test_a_block_may_end_at_any_byte(indent: int | None) -> None:
    """Two borders at every pair of places: in and around text, escapes, brackets and numbers."""
    elements = [{"a": 'x\\"]}\\\\', "b": [1, "é[", {}], "": ""}, "te,xt\\", 12.5, ['["', None], {}]
    raw = json.dumps(elements, indent=indent, ensure_ascii=False).encode()
    wrong = [
        (first, second)
        for first in range(len(raw) + 1)
        for second in range(first, len(raw) + 1)
        if _elements_of(raw[:first], raw[first:second], raw[second:]) != elements
    ]
    assert wrong == []


class InBlocks:
    """A stream that gives exactly these blocks, empty ones left out."""

    def __init__(self, *blocks: bytes) -> None:
        self._blocks = iter([block for block in blocks if block])

    def read(self, _size: int = -1) -> bytes:
        return next(self._blocks, b"")


def _elements_of(*blocks: bytes) -> list[object]:
    pieces = list(iter_elements(cast(BinaryIO, InBlocks(*blocks))))
    return [json.loads(p.data) if isinstance(p, Piece) else p for p in pieces]


@pytest.mark.parametrize("part", [b"\\\\", b'\\"', b'","', b'":{"', b'"', b"\\"])
def test_blocks_full_of_escapes_and_quotes_are_sliced_in_linear_time(part: bytes) -> None:
    raw = b'[{"' + part * (2 * limits.MIB // len(part))
    started = time.process_time()
    assert sliced(raw, bytes_max=4 * limits.MIB)[-1] in ("torn", raw[1:])
    assert time.process_time() - started < 5


@settings(max_examples=100, deadline=None)
@given(st.lists(values, min_size=1, max_size=3), st.data())
def test_a_torn_array_is_counted_and_its_whole_elements_are_kept(
    elements: list[object], data: st.DataObject
) -> None:
    raw = json.dumps(elements).encode()
    cut = data.draw(st.integers(1, len(raw) - 1))
    found = sliced(raw[:cut], 7, bytes_max=100_000)
    assert found[-1] == "torn"
    assert [json.loads(part) for part in found[:-1]] == elements[: len(found) - 1]


# Bytes that mean something to the slicer come as often as all others together.
broken = st.lists(
    st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"\\", b",", b"a", b" "])
    | st.binary(max_size=2),
    max_size=120,
).map(b"".join)


@settings(max_examples=1_000, deadline=None)
@given(broken, st.integers(1, 30), st.integers(1, 9), st.integers(0, 3))
def test_long_elements_are_sliced_as_short_ones_are(
    raw: bytes, size: int, leap: int, steps: int
) -> None:
    """With leaps of a few bytes after a few steps, in place of thousands after 64."""
    plainly = sliced(b"[" + raw, size=len(raw) + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "_STEPS_MAX", steps + 1)
        patch.setattr(json_stream, "_LEAP_MIN", leap)
        patch.setattr(json_stream, "_LEAP_MAX", 4 * leap)
        assert sliced(b"[" + raw, size) == plainly


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(1, 30))
def test_arbitrary_bytes_are_sliced_the_same_by_every_chunking(raw: bytes, size: int) -> None:
    assert sliced(raw, size) == sliced(raw)


def test_objects_without_an_array_are_elements() -> None:
    assert sliced(b'\xef\xbb\xbf {"a": "]}\\""}\n{"b": [1, {}]}\0\0') == [
        b'{"a": "]}\\""}',
        b'{"b": [1, {}]}',
    ]


def test_what_stands_behind_the_array_is_counted() -> None:
    assert sliced(b"[1] garbage [2]") == [b"1", "trailing"]
    assert sliced(b"[1]\n\0\0\0 ") == [b"1"]


def test_a_large_element_is_counted_and_the_next_one_is_kept() -> None:
    assert sliced(b'["' + b"x" * 5_000 + b'", 2]', 64) == ["too_large", b"2"]
    assert sliced(b"[" + b"9" * 5_000 + b", 2]", 64) == ["too_large", b"2"]


def test_a_value_of_200_mb_is_counted_in_bounded_memory() -> None:
    tracemalloc.start()
    found = list(iter_elements(cast(BinaryIO, LongText())))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [Skipped("element 1", "too_large"), Piece(2, "element 2", b'{"b":1}')]
    assert peak < limits.import_line_bytes_max + 8 * limits.MIB


FILLINGS = {
    "objects": b"{},",
    "nested arrays": b"[[[]]],",
    "arrays of a thousand levels": b"[" * 1_000 + b"]" * 1_000,
    "brackets that open": b"[",
    "empty texts": b'"",',
    "keys": b'"a":1,',
    "escaped quotes": b'"\\"",',
    "numbers": b"1,",
    "spaces": b" ",
}


@pytest.mark.parametrize("filling", FILLINGS)
def test_what_fills_a_large_element_costs_little_time_and_no_memory(filling: str) -> None:
    """The processor's time: 32 MB, of which 200 MB would take some six times as much."""
    chunk = FILLINGS[filling] * (limits.MIB // len(FILLINGS[filling]))
    blocks = InBlocks(b'[{"a":[', *[chunk] * 32, b"]},2]")
    started = time.process_time()
    found = list(iter_elements(cast(BinaryIO, blocks), bytes_max=limits.MIB))
    assert time.process_time() - started < 2
    is_whole = filling != "brackets that open"
    assert found == (
        [Skipped("element 1", "too_large"), Piece(2, "element 2", b"2")]
        if is_whole
        else [Skipped("element 1", "torn")]
    )


def test_brackets_without_end_are_torn() -> None:
    assert sliced(b"[" * 100_000, 4_096, bytes_max=1_000_000) == ["torn"]


# Lines -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 20])
def test_lines_keep_their_numbers_through_blanks_ends_and_nuls(size: int) -> None:
    raw = b'\xef\xbb\xbf{"a":1}\r\n\n  \n{"b":2}\n\0\0\0\n' + b"x" * 50 + b'\n{"c":3'
    assert list(iter_lines(stream(raw, size), bytes_max=20)) == [
        Piece(1, "line 1", b'{"a":1}'),
        Piece(4, "line 4", b'{"b":2}'),
        Skipped("line 6", "too_large"),
        Piece(7, "line 7", b'{"c":3', is_torn=True),
    ]


def test_a_line_of_200_mb_is_never_held() -> None:
    tracemalloc.start()
    found = list(iter_lines(cast(BinaryIO, LongText()), bytes_max=limits.MIB))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [Skipped("line 1", "too_large")]
    assert peak < 8 * limits.MIB
