"""Reads a session's history page by page, verifying the chain on the way when asked.

Pages keep every read transaction short. What is returned has been checked: an event is only
yielded once its whole batch fits the chain (INV-11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TypeVar
from uuid import UUID

from engrain.contracts import limits
from engrain.contracts.errors import Corrupt
from engrain.contracts.events import Erased, StoredEvent
from engrain.contracts.ids import SessionKey
from engrain.rules.canonical import decode_event
from engrain.rules.chain import EventHeader, batch_link, commit_event, genesis_link
from engrain.storage.database import Database

_BATCHES_FIRST = 32
_BATCHES_MAX = 128
_PAGE_BYTES = 4 * limits.MIB

Batch = tuple[int, int, int, bytes, bytes]
"""(first sequence, last sequence, recorded at, link, operation id)"""
EventRow = tuple[int, int, str, bytes, bytes | None, bytes | None]
"""(sequence, turn, kind, commitment, salt, payload); unverified, the hashes are None"""

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
    query = "list_events" if verifier else "list_payloads"
    return _iter_pages(
        database, key, query, lambda batches, rows: _read_page(batches, rows, verifier), after
    )


def _iter_pages(
    database: Database,
    key: SessionKey,
    query: str,
    read: Callable[[list[Batch], Iterator[EventRow]], tuple[int, T]],
    after: int,
) -> Iterator[tuple[int, T]]:
    """What `read` makes of batches past `after` and their rows, each page in a transaction.

    `read` gets the rows as they come, so that their bytes are still at hand when it hashes and
    decodes them, and says how many bytes of payload they had: the next page has as many batches
    as should make `_PAGE_BYTES`, so that large events are not held by the hundred. From a corrupt
    page on it goes batch by batch, so that what comes before the corrupt one is still given out.
    """
    where = {"scope_key": key.scope, "session_key": key.session}
    limit = _BATCHES_FIRST
    while True:
        try:
            with database.read() as reader:
                batches = reader.all("transcript.list_batches", after=after, limit=limit, **where)
                if not batches:
                    return
                last = batches[-1][1]
                _check_gapless(batches, after)
                rows = reader.each(f"transcript.{query}", after=after, through=last, **where)
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
    batches: list[Batch], rows: Iterator[EventRow]
) -> tuple[int, tuple[list[Batch], list[EventRow]]]:
    kept = list(rows)
    if [row[0] for row in kept] != list(range(batches[0][0], batches[-1][1] + 1)):
        raise _incomplete(batches)
    return sum(len(row[5]) for row in kept if row[5] is not None), (batches, kept)


def _read_page(
    batches: list[Batch], rows: Iterator[EventRow], verifier: ChainVerifier | None
) -> tuple[int, list[StoredEvent]]:
    """One pass, which hashes and decodes each payload while the processor still has it."""
    size = 0
    events: list[StoredEvent] = []
    headers: list[EventHeader] = []
    keep, note, decode = events.append, headers.append, decode_event
    for at, last, recorded_at, _, _ in batches:
        for sequence, turn, kind, commitment, salt, payload in islice(rows, last - at + 1):
            if sequence != at:
                raise _incomplete(batches)
            at += 1
            if verifier is not None:
                note((kind, turn, commitment))
                if payload is not None and commit_event(salt or b"", payload) != commitment:
                    raise _not_committed(sequence)
            if payload is None:
                keep(StoredEvent(sequence, turn, recorded_at, Erased(was=kind)))
            else:
                size += len(payload)
                keep(StoredEvent(sequence, turn, recorded_at, decode(payload)))
        if at <= last:
            raise _incomplete(batches)
    if next(rows, None) is not None:  # which also ends the statement, and so its snapshot
        raise _incomplete(batches)
    if verifier is not None:
        verifier.follow(batches, headers)
    return size, events


def _not_committed(sequence: int) -> Corrupt:
    return Corrupt(f"event {sequence} is not the one that was committed")


class ChainVerifier:
    """Recomputes the chain over the batches that it is fed, from the session's very first."""

    def __init__(self, session_id: UUID) -> None:
        self._session_id = session_id
        self._next = 1
        self.link = genesis_link(session_id)
        self.erased = 0

    def feed(self, batch: Batch, events: list[EventRow]) -> None:
        """Raises `Corrupt` unless the batch follows and every commitment and link holds."""
        for sequence, _, _, commitment, salt, payload in events:
            if payload is not None and commit_event(salt or b"", payload) != commitment:
                raise _not_committed(sequence)
        self.follow(
            [batch], [(kind, turn, commitment) for _, turn, kind, commitment, _, _ in events]
        )
        self.erased += sum(row[5] is None for row in events)

    def follow(self, batches: Sequence[Batch], headers: Sequence[EventHeader]) -> None:
        """Takes batches whose payloads hold, and their headers; none when a link breaks."""
        begin = self._next
        if batches[0][0] != begin:
            raise Corrupt(f"sequence {batches[0][0]} follows {begin - 1}")
        link = self.link
        for first, last, recorded_at, found, operation_id in batches:
            own = headers[first - begin : last - begin + 1]
            link = batch_link(link, self._session_id, operation_id, first, recorded_at, own)
            if link != found:
                raise Corrupt(f"the chain breaks in the batch of events {first} to {last}")
        self.link = link
        self._next = batches[-1][1] + 1

    @property
    def event_count(self) -> int:
        return self._next - 1
