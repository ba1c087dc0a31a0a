"""Reads a session's history page by page, verifying the chain on the way when asked.

Pages keep every read transaction short. What is returned has been checked: an event is only
yielded once its whole batch fits the chain (INV-11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar
from uuid import UUID

from engrain.contracts import limits
from engrain.contracts.errors import Corrupt
from engrain.contracts.events import Erased, Event, StoredEvent
from engrain.contracts.ids import SessionKey
from engrain.rules.canonical import decode_events
from engrain.rules.chain import batch_link, first_uncommitted, genesis_link
from engrain.storage.database import Database, Row

_BATCHES_FIRST = 32
_BATCHES_MAX = 128
_PAGE_BYTES = 4 * limits.MIB

Batch = tuple[int, int, int, bytes, bytes]
"""(first sequence, last sequence, recorded at, link, operation id)"""
EventRow = tuple[int, int, str, bytes, bytes | None, bytes | None]
"""(sequence, turn, kind, commitment, salt, payload); an erased event lacks the last two"""
PayloadRow = tuple[int, str | None, bytes | None]
"""(turn, kind, payload), the kind of erased events alone"""

T = TypeVar("T")


def iter_batches(
    database: Database, key: SessionKey, *, after: int = 0
) -> Iterator[tuple[Batch, list[EventRow]]]:
    """Batches that begin past `after`, each with its event rows."""
    for _, (batches, rows) in _iter_pages(database, key, "list_events", _keep_page, after):
        first = batches[0][0]
        for batch in batches:
            yield batch, rows[batch[0] - first : batch[1] - first + 1]


def iter_histories(
    database: Database, key: SessionKey, *, verifier: ChainVerifier | None = None, after: int = 0
) -> Iterator[tuple[int, list[StoredEvent]]]:
    """Bytes of the payloads and events, from the batches past `after`, a page at a time.

    With `verifier` they are checked first; without it no commitment is even read.
    """
    if verifier is None:
        return _iter_pages(database, key, "list_payloads", _read_page, after)

    def read_verified(batches: list[Batch], rows: list[Row]) -> tuple[int, list[StoredEvent]]:
        verifier.feed(batches, rows)
        _, turns, kinds, _, _, payloads = zip(*rows, strict=True)
        return _read_columns(batches, turns, kinds, payloads)

    return _iter_pages(database, key, "list_events", read_verified, after)


def _iter_pages(
    database: Database,
    key: SessionKey,
    query: str,
    read: Callable[[list[Batch], list[Row]], tuple[int, T]],
    after: int,
) -> Iterator[tuple[int, T]]:
    """What `read` makes of batches past `after` and their rows, each page in a transaction.

    `read` says how many bytes of payload the rows had: the next page has as many batches as should
    make `_PAGE_BYTES`, so that large events are not held by the hundred. From a corrupt page on it
    goes batch by batch, so that what comes before the corrupt one is still given out.
    """
    where = {"scope_key": key.scope, "session_key": key.session}
    limit = _BATCHES_FIRST
    while True:
        with database.read() as reader:
            batches = reader.all("transcript.list_batches", after=after, limit=limit, **where)
            if not batches:
                return
            last = batches[-1][1]
            rows = reader.all(f"transcript.{query}", after=after, through=last, **where)
        try:
            _check_gapless(batches, after)
            if len(rows) != last - after:  # their sequences are distinct and lie between
                raise _incomplete(batches)
            page = read(batches, rows)
        except Corrupt:
            if limit == 1:
                raise
            limit = 1
        else:
            yield page
            after = last
            fitting = _PAGE_BYTES * len(batches) // max(page[0], 1)
            limit = max(1, min(2 * limit, fitting, _BATCHES_MAX))


def _check_gapless(batches: list[Batch], after: int) -> None:
    if batches[0][0] != after + 1 or any(
        one[1] + 1 != other[0] for one, other in pairwise(batches)
    ):
        raise _incomplete(batches)


def _incomplete(batches: list[Batch]) -> Corrupt:
    return Corrupt(f"events {batches[0][0]} to {batches[-1][1]} are not all there")


def _keep_page(
    batches: list[Batch], rows: list[EventRow]
) -> tuple[int, tuple[list[Batch], list[EventRow]]]:
    return sum(len(row[5]) for row in rows if row[5] is not None), (batches, rows)


def _read_page(batches: list[Batch], rows: list[PayloadRow]) -> tuple[int, list[StoredEvent]]:
    turns, kinds, payloads = zip(*rows, strict=True)
    return _read_columns(batches, turns, kinds, payloads)


def _read_columns(
    batches: list[Batch],
    turns: Sequence[int],
    kinds: Sequence[str | None],
    payloads: Sequence[bytes | None],
) -> tuple[int, list[StoredEvent]]:
    """Bytes of the payloads and events; each step is one loop of the interpreter's own."""
    kept = [payload for payload in payloads if payload is not None]
    events: Iterable[Event | Erased] = decode_events(kept)
    if len(kept) < len(payloads):
        left = iter(events)
        events = [
            Erased(was=kind or "") if payload is None else next(left)
            for kind, payload in zip(kinds, payloads, strict=True)
        ]
    times: list[int] = []
    for first, last, recorded_at, _, _ in batches:
        times += [recorded_at] * (last - first + 1)
    sequences = range(batches[0][0], batches[-1][1] + 1)
    return sum(map(len, kept)), list(map(StoredEvent, sequences, turns, times, events))


class ChainVerifier:
    """Recomputes the chain over the batches that it is fed, from the session's very first."""

    def __init__(self, session_id: UUID) -> None:
        self._session_id = session_id
        self._next = 1
        self.link = genesis_link(session_id)
        self.erased = 0

    def feed(self, batches: Sequence[Batch], rows: Sequence[EventRow]) -> None:
        """Takes batches and all their rows.

        Raises `Corrupt`, and takes none, unless they follow and every commitment and link holds.
        """
        begin = self._next
        if batches[0][0] != begin:
            raise Corrupt(f"sequence {batches[0][0]} follows {begin - 1}")
        _, turns, kinds, commitments, salts, payloads = zip(*rows, strict=True)
        if (at := first_uncommitted(commitments, salts, payloads)) is not None:
            raise Corrupt(f"event {begin + at} is not the one that was committed")
        headers = list(zip(kinds, turns, commitments, strict=True))
        link = self.link
        for first, last, recorded_at, found, operation_id in batches:
            own = headers[first - begin : last - begin + 1]
            link = batch_link(link, self._session_id, operation_id, first, recorded_at, own)
            if link != found:
                raise Corrupt(f"the chain breaks in the batch of events {first} to {last}")
        self.link = link
        self.erased += payloads.count(None)
        self._next = batches[-1][1] + 1

    @property
    def event_count(self) -> int:
        return self._next - 1
