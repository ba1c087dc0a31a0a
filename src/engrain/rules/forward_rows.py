"""The packed form of one episode's terms, as its forward row holds it.

A search reads up to a few hundred unsettled rows for each term of a query, so a term is looked for
with the bytes search of the interpreter, and never decoded. The form:

    length, two bytes, little-endian | 0xff | a byte for each term that occurs more than once |
    line feed | terms, each followed by a line feed, those that occur more than once first

A count byte is the count with the top bit set. No term holds a line feed, no UTF-8 holds 0xff, and
no count byte is a line feed: what is found between two line feeds is a term.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

COUNT_MAX: Final = 127
LENGTH_MAX: Final = 2**16 - 1
_HEAD: Final = 3
_LINE_FEED: Final = ord("\n")


def pack_terms(counts: Mapping[str, int], length: int) -> bytes:
    """Packs them; counts above `COUNT_MAX` and lengths above `LENGTH_MAX` are cut to these."""
    ordered = sorted(counts, key=lambda term: (-counts[term], term))
    often = bytes(min(counts[term], COUNT_MAX) | 0x80 for term in ordered if counts[term] > 1)
    head = min(length, LENGTH_MAX).to_bytes(2, "little") + b"\xff" + often
    return head + "\n".join(("", *ordered, "")).encode()


def unpack_terms(packed: bytes) -> tuple[dict[str, int], int]:
    """Counts and length, as they were packed."""
    start = packed.index(b"\n", _HEAD)
    often = [byte & 0x7F for byte in packed[_HEAD:start]]
    found = packed[start + 1 : -1].decode().split("\n") if len(packed) > start + 1 else []
    counts = dict.fromkeys(found, 1)
    counts.update(zip(found, often, strict=False))
    return counts, int.from_bytes(packed[:2], "little")


def lengths_of_packed(rows: Sequence[bytes]) -> array[int]:
    """The length of each row."""
    lengths = array("H", b"".join([row[:2] for row in rows]))
    if sys.byteorder == "big":
        lengths.byteswap()
    return lengths


class JoinedRows:
    """Rows end to end, in which a term is looked for in one pass."""

    def __init__(self, rows: Sequence[bytes]) -> None:
        self._rows = rows
        self._ends = list(accumulate(map(len, rows)))
        self._joined = b"".join(rows)

    def find(self, term: str) -> Iterator[tuple[int, int]]:
        """(position of the row, count) for each row that holds the term.

        It is looked for bare, since every term has line feeds beside it and they would make a slow
        search. The two bytes of a length may look like one: what lies in a head is no term.
        """
        sought = term.encode()
        size, joined, ends = len(sought), self._joined, self._ends
        place = joined.find(sought) if sought else -1
        while place >= 0:
            if joined[place - 1] == _LINE_FEED == joined[place + size]:
                at = bisect_right(ends, place)
                row, end = self._rows[at], ends[at]
                if place > end - len(row) + _HEAD:
                    yield at, _count_in(row, b"\n%b\n" % sought)
                    place = joined.find(sought, end)
                    continue
            place = joined.find(sought, place + 1)


def find_in_packed(rows: Sequence[bytes], term: str) -> Iterator[tuple[int, int]]:
    """(position of the row, count) for each row that holds the term."""
    return JoinedRows(rows).find(term)


def _count_in(packed: bytes, needle: bytes) -> int:
    if packed.startswith(b"\n", _HEAD):  # each of its terms occurs once
        return 1
    start, place = packed.index(b"\n", _HEAD), packed.index(needle)
    nth = packed.count(b"\n", start, place)
    return packed[_HEAD + nth] & 0x7F if _HEAD + nth < start else 1
