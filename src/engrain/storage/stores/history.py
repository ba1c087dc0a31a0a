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
"""(sequence, turn, kind, commitment, salt, payload)"""

T = TypeVar("T")


def iter_batches(
    database: Database, key: SessionKey, *, after: int = 0
) -> Iterator[tuple[Batch, list[EventRow]]]:
    """Batches that begin past `after`, each with its event rows."""
    for _, (batches, rows) in _iter_pages(database, key, _keep_page, after):
        first = batches[0][0]
        for batch in batches:
            yield batch, rows[batch[0] - first : batch[1] - first + 1]


def iter_histories(
    database: Database, key: SessionKey, *, verifier: ChainVerifier | None = None, after: int = 0
) -> Iterator[tuple[int, list[StoredEvent]]]:
    """Bytes of the payloads and events, from the batches past `after`, a page at a time.

    With `verifier` they are checked first.
    """
    return _iter_pages(
        database, key, lambda batches, rows: _read_page(batches, rows, verifier), after
    )


def _iter_pages(
    database: Database,
    key: SessionKey,
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
                rows = reader.each("transcript.list_events", after=after, through=last, **where)
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


def _keep_page(
    batches: list[Batch], rows: Iterator[EventRow]
) -> tuple[int, tuple[list[Batch], list[EventRow]]]:
    kept = list(rows)
    _check_whole(batches, [row[0] for row in kept])
    return sum(len(row[5]) for row in kept if row[5] is not None), (batches, kept)


def _read_page(
    batches: list[Batch], rows: Iterator[EventRow], verifier: ChainVerifier | None
) -> tuple[int, list[StoredEvent]]:
    checked = rows if verifier is None else verifier.check(rows)
    times = [batch[2] for batch in batches for _ in range(batch[0], batch[1] + 1)]
    size = 0
    events: list[StoredEvent] = []
    keep, decode = events.append, decode_event
    for (sequence, turn, kind, _, _, payload), recorded_at in zip(checked, times, strict=False):
        if payload is None:
            keep(StoredEvent(sequence, turn, recorded_at, Erased(was=kind)))
        else:
            size += len(payload)
            keep(StoredEvent(sequence, turn, recorded_at, decode(payload)))
    _check_whole(batches, [event.sequence for event in events])
    if verifier is not None:
        verifier.follow(batches)
    return size, events


def _check_whole(batches: list[Batch], sequences: list[int]) -> None:
    """The batches follow each other, and every event of them is there."""
    first, last = batches[0][0], batches[-1][1]
    is_gapless = all(one[1] + 1 == other[0] for one, other in pairwise(batches))
    if not is_gapless or sequences != list(range(first, last + 1)):
        raise Corrupt(f"events {first} to {last} are not all there")


class ChainVerifier:
    """Recomputes the chain over the batches that it is fed, from the session's very first."""

    def __init__(self, session_id: UUID) -> None:
        self._session_id = session_id
        self._next = 1
        self.link = genesis_link(session_id)
        self.erased = 0
        self._checked: list[EventHeader] = []
        self._forgotten = 0

    def feed(self, batch: Batch, events: list[EventRow]) -> None:
        """Raises `Corrupt` unless the batch follows and every commitment and link holds."""
        for _ in self.check(events):
            pass
        self.follow([batch])

    def check(self, rows: Iterable[EventRow]) -> Iterator[EventRow]:
        """The rows themselves; raises `Corrupt` at the first whose commitment does not hold."""
        checked = self._checked = []
        self._forgotten = 0
        for row in rows:
            sequence, turn, kind, commitment, salt, payload = row
            if payload is None:
                self._forgotten += 1
            elif commit_event(salt or b"", payload) != commitment:
                raise Corrupt(f"event {sequence} is not the one that was committed")
            checked.append((kind, turn, commitment))
            yield row

    def follow(self, batches: Sequence[Batch]) -> None:
        """Takes the batches whose rows were checked; when a link breaks, none of them."""
        if batches[0][0] != self._next:
            raise Corrupt(f"sequence {batches[0][0]} follows {self._next - 1}")
        link, begin = self.link, self._next
        for first, last, recorded_at, found, operation_id in batches:
            own = self._checked[first - begin : last - begin + 1]
            link = batch_link(link, self._session_id, operation_id, first, recorded_at, own)
            if link != found:
                raise Corrupt(f"the chain breaks in the batch of events {first} to {last}")
        self.link = link
        self.erased += self._forgotten
        self._next = batches[-1][1] + 1

    @property
    def event_count(self) -> int:
        return self._next - 1
