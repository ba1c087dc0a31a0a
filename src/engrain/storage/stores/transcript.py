"""The transcript: turns appended whole under a fenced lease, replayed and verified.

Everything slow, which is encoding, committing and digesting, happens before the transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from engrain.contracts import limits
from engrain.contracts.errors import (
    Corrupt,
    EngrainError,
    LimitExceeded,
    NotFound,
    Uncertain,
)
from engrain.contracts.events import Event, StoredEvent
from engrain.contracts.ids import Ids, OperationId, SessionId, SessionKey
from engrain.contracts.leases import SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.transcript import AppendReceipt, SourceMarks, Verification
from engrain.contracts.workspace import Workspaces
from engrain.rules.identity import event_source_mark
from engrain.rules.validation import PairChecker, check_append
from engrain.storage.database import Database, Row, Writer
from engrain.storage.stores.appending import Appender, advance_lease
from engrain.storage.stores.audit import SqlAuditStore
from engrain.storage.stores.history import ChainVerifier, iter_batches, iter_histories
from engrain.storage.stores.scopes import Scopes
from engrain.storage.stores.sessions import resolve


class SqlTranscriptStore:
    """Implements `TranscriptStore` on either engine."""

    def __init__(
        self,
        database: Database,
        scopes: Scopes,
        ids: Ids,
        workspaces: Workspaces,
        audit: SqlAuditStore,
    ) -> None:
        self._database = database
        self._scopes = scopes
        self._appender = Appender(ids, workspaces)
        self._audit = audit

    def append_turn(
        self,
        lease: SessionLease,
        events: Sequence[Event],
        *,
        operation_id: OperationId | None = None,
        turn: int | None = None,
    ) -> AppendReceipt:
        check_append(events, known_calls=() if operation_id else lease.known_calls)
        prepared = self._appender.prepare(lease, events, operation_id, turn)
        key = lease.reveal()[0].key
        try:
            receipt, deadline, stepped_us = self._database.write(
                key,
                lambda writer: self._appender.write(writer, lease, prepared),
                size=prepared.size,
            )
        except Uncertain as lost:
            raise Uncertain(lost.message, prepared.operation_id) from lost
        advance_lease(lease, receipt, deadline, events)
        if stepped_us > limits.clock_step_back_audit_us:
            with suppress(EngrainError):  # the turn is durable: that is what the caller asked
                self._audit.record(lease.scope, "clock_stepped_back", {"by_us": stepped_us})
        return receipt

    def replay(
        self, lease: SessionLease, *, is_verified: bool = True, is_bounded: bool = True
    ) -> Iterator[StoredEvent]:
        pairs = PairChecker()
        counted = size = 0
        last = 0
        lease.cursor = None
        lease.known_calls.clear()
        key = lease.reveal()[0].key
        begun = self._read_head(key, lease.session_id)
        verifier = ChainVerifier(lease.session_id) if is_verified else None
        for payload_bytes, events in iter_histories(self._database, key, verifier=verifier):
            counted += len(events)
            size += payload_bytes
            if is_bounded:
                _check_replay_bounds(counted, size)
            wrong = pairs.feed_all(events, lease.known_calls)
            yield from events[: wrong[0]] if wrong else events
            last = events[-1].sequence
            if wrong:
                raise Corrupt(f"event {events[wrong[0]].sequence}: {wrong[1]}")
        if why := pairs.finish():
            raise Corrupt(f"event {last}: {why}")
        ended = self._read_head(key, lease.session_id)
        _check_end(last, verifier.link if verifier else None, begun, ended)
        lease.cursor = last

    def iter_events(
        self, scope: Scope, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> Iterator[StoredEvent]:
        _, key = resolve(self._database, self._scopes, scope, session_id)
        with self._database.read() as reader:
            row = reader.one(
                "transcript.batch_of",
                scope_key=key.scope,
                session_key=key.session,
                sequence=after + 1,
            )
        left = limit
        begin = row[0] - 1 if row else 0
        for _, events in iter_histories(self._database, key, after=begin):
            for stored in events:
                if stored.sequence <= after:
                    continue
                if left is not None:
                    if left <= 0:
                        return
                    left -= 1
                yield stored

    def known_sources(self, scope: Scope, session_id: SessionId) -> SourceMarks:
        known, key = resolve(self._database, self._scopes, scope, session_id)
        with self._database.read() as reader:
            rows = reader.all(
                "transcript.list_sources", scope_key=key.scope, session_key=key.session
            )
        return SourceMarks(
            {row[0] for row in rows},
            lambda source_id: event_source_mark(known.secret, session_id, source_id),
        )

    def verify(self, scope: Scope, session_id: SessionId) -> Verification:
        _, key = resolve(self._database, self._scopes, scope, session_id)
        begun = self._read_head(key, session_id)
        verifier = ChainVerifier(session_id)
        for batch, rows in iter_batches(self._database, key):
            verifier.feed([batch], rows)
        ended = self._read_head(key, session_id)
        _check_end(verifier.event_count, verifier.link, begun, ended)
        return Verification(
            session_id=session_id,
            event_count=verifier.event_count,
            erased=verifier.erased,
            link=verifier.link.hex(),
        )

    def _read_head(self, key: SessionKey, session_id: SessionId) -> Row:
        where = {"scope_key": key.scope, "session_key": key.session}
        with self._database.read() as reader:
            head = reader.one("transcript.head", **where)
        if head is None:
            raise NotFound("session", session_id)
        return head

    def redact(self, scope: Scope, session_id: SessionId, sequences: Sequence[int]) -> int:
        _, key = resolve(self._database, self._scopes, scope, session_id)

        def body(writer: Writer) -> int:
            return sum(
                writer.one(
                    "transcript.redact",
                    scope_key=key.scope,
                    session_key=key.session,
                    sequence=sequence,
                )
                is not None
                for sequence in sequences
            )

        return self._database.write(key, body)


def _check_end(count: int, link: bytes | None, begun: Row, ended: Row) -> None:
    """Raises `Corrupt` unless history that was read between two looks at its head ends there."""
    if count < begun[0]:
        raise Corrupt(f"events {count + 1} to {begun[0]} are not there")
    if count > ended[0]:
        raise Corrupt("the session's head lies before its last event")
    if count == ended[0] and link not in (None, ended[1]):
        raise Corrupt("the session's head does not end its chain")


def _check_replay_bounds(count: int, size: int) -> None:
    if count > limits.replay_events_max:
        raise LimitExceeded("replay_events_max", limits.replay_events_max)
    if size > limits.replay_bytes_max:
        raise LimitExceeded("replay_bytes_max", limits.replay_bytes_max)
