"""Reads a session's history batch by batch, verifying the chain on the way when asked.

Pages keep every read transaction short. What is returned has been checked: an event is only
yielded once its whole batch fits the chain (INV-11).
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from engrain.contracts.errors import Corrupt
from engrain.contracts.events import Erased, StoredEvent
from engrain.contracts.ids import SessionKey
from engrain.rules.canonical import decode_event
from engrain.rules.chain import batch_link, commit_event, genesis_link
from engrain.storage.database import Database, Row

_BATCHES_PAGE = 128
_SEQUENCE_MAX = 2**32 - 1

Batch = tuple[int, int, int, bytes, bytes]
"""(first sequence, last sequence, recorded at, link, operation id)"""
EventRow = tuple[int, int, str, bytes, bytes | None, bytes | None]
"""(sequence, turn, kind, commitment, salt, payload)"""


def iter_batches(
    database: Database, key: SessionKey, *, after: int = 0, through: int = _SEQUENCE_MAX
) -> Iterator[tuple[Batch, list[EventRow]]]:
    """Batches that begin past `after` and at or before `through`, each with its event rows."""
    where = {"scope_key": key.scope, "session_key": key.session}
    while True:
        with database.read() as reader:
            batches = reader.all(
                "transcript.list_batches", after=after, limit=_BATCHES_PAGE, **where
            )
            batches = [batch for batch in batches if batch[0] <= through]
            if not batches:
                return
            last = batches[-1][1]
            rows = reader.all("transcript.list_events", after=after, through=last, **where)
        yield from _group(batches, rows)
        after = last


def _group(batches: list[Row], rows: list[Row]) -> Iterator[tuple[Batch, list[EventRow]]]:
    at = 0
    for batch in batches:
        count = batch[1] - batch[0] + 1
        events = rows[at : at + count]
        if len(events) != count or events[0][0] != batch[0] or events[-1][0] != batch[1]:
            raise Corrupt(f"events {batch[0]} to {batch[1]} are not all there")
        at += count
        yield batch, events


class ChainVerifier:
    """Recomputes the chain over the batches that it is fed, from the session's very first."""

    def __init__(self, session_id: UUID) -> None:
        self._session_id = session_id
        self._next = 1
        self.link = genesis_link(session_id)
        self.erased = 0

    def feed(self, batch: Batch, events: list[EventRow]) -> None:
        """Raises `Corrupt` unless the batch follows and every commitment and link holds."""
        first, last, recorded_at, link, operation_id = batch
        if first != self._next:
            raise Corrupt(f"sequence {first} follows {self._next - 1}")
        for sequence, _, _, commitment, salt, payload in events:
            if payload is None or salt is None:
                self.erased += 1
            elif commit_event(salt, payload) != commitment:
                raise Corrupt(f"event {sequence} is not the one that was committed")
        headers = [(kind, turn, commitment) for _, turn, kind, commitment, _, _ in events]
        self.link = batch_link(
            self.link, self._session_id, operation_id, first, recorded_at, headers
        )
        if self.link != link:
            raise Corrupt(f"the chain breaks in the batch of events {first} to {last}")
        self._next = last + 1

    @property
    def event_count(self) -> int:
        return self._next - 1


def read_events(batch: Batch, events: list[EventRow]) -> list[StoredEvent]:
    """The batch's events as values; one that was forgotten reads as `Erased`."""
    recorded_at = batch[2]
    return [
        StoredEvent(
            sequence,
            turn,
            recorded_at,
            Erased(was=kind) if payload is None else decode_event(payload),
        )
        for sequence, turn, kind, _, _, payload in events
    ]
