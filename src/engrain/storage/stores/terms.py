"""The search index of a scope: forward rows in a tail, settled into postings, looked up by term.

An append writes one packed forward row. `settle_tail` moves up to 256 of them into one block of
postings; a look-up reads postings and tail alike, so what is unsettled is found too. A forward row
names the terms, and once settled the block, from which erasure removes its episode.
"""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from engrain.contracts import limits
from engrain.contracts.ids import ScopeKey
from engrain.contracts.terms import Postings, ScopeTerms
from engrain.rules.forward_rows import (
    JoinedRows,
    lengths_of_packed,
    pack_terms,
    unpack_terms,
)
from engrain.storage.database import Reader, Writer

_ENTRY_BYTES = 8 + 1 + 2
_EVERY_ROW = 2**63 - 1


def add_to_tail(
    writer: Writer, scope: ScopeKey, rows: Iterable[tuple[int, Mapping[str, int], int]]
) -> None:
    """Forward rows of new episodes: (episode key, counts of terms, length)."""
    writer.run_many(
        "terms.add_tail",
        [
            {
                "scope_key": scope.scope,
                "episode_key": key,
                "terms": pack_terms(counts, length),
            }
            for key, counts, length in rows
        ],
    )


def look_up(
    reader: Reader, scope: ScopeKey, query: Sequence[str]
) -> tuple[ScopeTerms, dict[str, Postings]]:
    """The scope's statistics and where each term of the query occurs in it."""
    settled = reader.one("terms.read_settled", scope_key=scope.scope) or (0, 0, 0)
    tail = reader.all("terms.list_tail", scope_key=scope.scope, limit=_EVERY_ROW)
    blocks = reader.all_of(
        "terms.list_postings", [{"scope_key": scope.scope, "term": term} for term in query]
    )
    forward = [packed for _, packed in tail]
    lengths = lengths_of_packed(forward)
    unsettled = JoinedRows(forward)
    statistics = ScopeTerms(settled[0] + len(tail), settled[1] + sum(lengths))
    postings = {}
    for term, rows in zip(query, blocks, strict=True):
        found = _Entries()
        for (entries,) in rows:
            found.extend(entries)
        for at, count in unsettled.find(term):
            found.add(tail[at][0], count, lengths[at])
        if found.keys:
            postings[term] = Postings(found.keys, found.counts, found.lengths)
    return statistics, postings


def settle_tail(writer: Writer, scope: ScopeKey) -> int:
    """Moves the oldest forward rows into one new block of postings; how many it moved."""
    where = {"scope_key": scope.scope}
    tail = writer.all("terms.list_tail", limit=limits.settle_episodes_max, **where)
    if not tail:
        return 0
    settled = writer.one("terms.read_settled", **where) or (0, 0, 0)
    block = settled[2] + 1
    by_term: defaultdict[str, _Entries] = defaultdict(_Entries)
    total = 0
    for key, packed in tail:
        counts, length = unpack_terms(packed)
        total += length
        for term, count in counts.items():
            by_term[term].add(key, count, length)
    writer.run_many(
        "terms.add_postings",
        [
            {**where, "term": term, "block": block, "entries": by_term[term].pack()}
            for term in sorted(by_term)
        ],
    )
    writer.run_many(
        "terms.add_forward",
        [{**where, "episode_key": key, "block": block, "terms": packed} for key, packed in tail],
    )
    for key, _ in tail:
        writer.run("terms.drop_tail", episode_key=key, **where)
    writer.run(
        "terms.set_settled",
        episode_count=settled[0] + len(tail),
        total_length=settled[1] + total,
        last_block=block,
        **where,
    )
    return len(tail)


def remove_from_index(writer: Writer, scope: ScopeKey, key: int) -> None:
    """Takes an episode out of tail, forward rows, postings and statistics."""
    where = {"scope_key": scope.scope}
    if writer.one("terms.drop_tail", episode_key=key, **where) is not None:
        return
    row = writer.one("terms.drop_forward", episode_key=key, **where)
    if row is None:
        return
    block, packed = row
    counts, length = unpack_terms(packed)
    for term in counts:
        _remove_posting(writer, {**where, "term": term, "block": block}, key)
    settled = writer.one("terms.read_settled", **where)
    assert settled is not None, "what was settled is counted"
    writer.run(
        "terms.set_settled",
        episode_count=settled[0] - 1,
        total_length=settled[1] - length,
        last_block=settled[2],
        **where,
    )


def _remove_posting(writer: Writer, where: dict[str, object], key: int) -> None:
    row = writer.one("terms.read_postings", **where)
    assert row is not None, "the forward row names the blocks of its terms"
    left = _Entries()
    left.extend(row[0], without=key)
    if left.keys:
        writer.run("terms.set_postings", entries=left.pack(), **where)
    else:
        writer.run("terms.drop_postings", **where)


class _Entries:
    """Postings of one term: three parallel arrays, packed little-endian one after the other."""

    __slots__ = ("counts", "keys", "lengths")

    def __init__(self) -> None:
        self.keys = array("q")
        self.counts = array("B")
        self.lengths = array("H")

    def add(self, key: int, count: int, length: int) -> None:
        self.keys.append(key)
        self.counts.append(count)
        self.lengths.append(length)

    def extend(self, packed: bytes, *, without: int | None = None) -> None:
        count = len(packed) // _ENTRY_BYTES
        added = self if without is None else _Entries()
        begin = len(added.keys)
        added.keys.frombytes(packed[: 8 * count])
        added.counts.frombytes(packed[8 * count : 9 * count])
        added.lengths.frombytes(packed[9 * count :])
        if sys.byteorder == "big":
            added.keys[begin:] = _swapped(added.keys[begin:])
            added.lengths[begin:] = _swapped(added.lengths[begin:])
        if added is not self:
            for at, key in enumerate(added.keys):
                if key != without:
                    self.add(key, added.counts[at], added.lengths[at])

    def pack(self) -> bytes:
        keys, lengths = self.keys, self.lengths
        if sys.byteorder == "big":
            keys, lengths = array("q", keys), array("H", lengths)
            keys.byteswap()
            lengths.byteswap()
        return keys.tobytes() + self.counts.tobytes() + lengths.tobytes()


def _swapped(values: array[int]) -> array[int]:
    values.byteswap()
    return values
