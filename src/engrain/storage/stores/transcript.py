"""The transcript: turns appended whole under a fenced lease, replayed and verified.

Everything slow, which is encoding, committing and digesting, happens before the transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import (
    Corrupt,
    EngrainError,
    InvalidValue,
    LimitExceeded,
    NotFound,
    Uncertain,
)
from engrain.contracts.events import KIND_OF, Event, StoredEvent, ToolCall
from engrain.contracts.ids import Ids, OperationId, ScopeKey, SessionId, SessionKey
from engrain.contracts.leases import SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.transcript import AppendReceipt, SourceMarks, Verification
from engrain.contracts.workspace import Workspaces
from engrain.rules.canonical import encode_event
from engrain.rules.chain import SALT_BYTES, EventHeader, batch_link, commit_event
from engrain.rules.identity import event_source_mark, request_digest
from engrain.rules.lease import HeldLease, check_authority, check_cursor, next_deadline
from engrain.rules.validation import PairChecker, check_append
from engrain.storage.database import Database, Row, Writer
from engrain.storage.stores.audit import SqlAuditStore
from engrain.storage.stores.history import ChainVerifier, iter_batches, iter_histories
from engrain.storage.stores.operations import repeated
from engrain.storage.stores.scopes import Scopes
from engrain.storage.stores.sessions import resolve


class PreparedTurn(msgspec.Struct, frozen=True):
    """A whole append, ready: nothing is encoded or hashed under the write lock but the link.

    Its sequences follow what the lease had seen of the history, and hold if that is all of it.
    """

    cursor: int | None

    operation_id: OperationId
    is_fresh: bool
    request_digest: bytes
    turn: int | None
    events: Sequence[Event]
    rows: list[dict[str, object]]
    headers: list[EventHeader]
    size: int


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
        self._ids = ids
        self._workspaces = workspaces
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
        prepared = self._prepare(lease, events, operation_id, turn)
        key = lease.reveal()[0].key
        try:
            receipt, deadline, stepped_us = self._database.write(
                key, lambda writer: self._append(writer, lease, prepared), size=prepared.size
            )
        except Uncertain as lost:
            raise Uncertain(lost.message, prepared.operation_id) from lost
        _advance(lease, receipt, deadline, events)
        if stepped_us > limits.clock_step_back_audit_us:
            with suppress(EngrainError):  # the turn is durable: that is what the caller asked
                self._audit.record(lease.scope, "clock_stepped_back", {"by_us": stepped_us})
        return receipt

    def _prepare(
        self,
        lease: SessionLease,
        events: Sequence[Event],
        operation_id: OperationId | None,
        turn: int | None,
    ) -> PreparedTurn:
        binding = lease.reveal()[0]
        key = binding.key
        payloads = [encode_event(event) for event in events]
        size = sum(map(len, payloads))
        if size > limits.append_bytes_max:
            raise LimitExceeded("append_bytes_max", limits.append_bytes_max, size)
        cursor = lease.cursor
        first = (cursor or 0) + 1
        turn_of_each = turn or first
        salts = self._ids.random_bytes(SALT_BYTES * len(events))
        rows: list[dict[str, object]] = []
        headers: list[EventHeader] = []
        for at, (event, payload) in enumerate(zip(events, payloads, strict=True)):
            kind = KIND_OF[type(event)]
            salt = salts[at * SALT_BYTES : (at + 1) * SALT_BYTES]
            commitment = commit_event(salt, payload)
            headers.append((kind, turn_of_each, commitment))
            rows.append(
                {
                    "scope_key": key.scope,
                    "session_key": key.session,
                    "sequence": first + at,
                    "turn": turn_of_each,
                    "kind": kind,
                    "commitment": commitment,
                    "salt": salt,
                    "source_mark": None
                    if event.source_id is None
                    else event_source_mark(binding.secret, lease.session_id, event.source_id),
                    "payload": payload,
                }
            )
        parts = (lease.session_id.bytes, b"" if turn is None else b"%d" % turn, *payloads)
        return PreparedTurn(
            cursor,
            operation_id or OperationId(self._ids.uuid7()),
            operation_id is None,
            request_digest(binding.secret, "append", parts),
            turn,
            events,
            rows,
            headers,
            size,
        )

    def _append(
        self, writer: Writer, lease: SessionLease, prepared: PreparedTurn
    ) -> tuple[AppendReceipt, int, int]:
        """The receipt, the lease's deadline after it, and how far the clock stepped back."""
        binding, digest = lease.reveal()
        key = binding.key
        head = writer.one("transcript.head", scope_key=key.scope, session_key=key.session)
        if head is None:
            raise NotFound("session", lease.session_id)
        if not prepared.is_fresh and (first := _first_receipt(writer, lease, prepared)):
            return first, lease.deadline_us, 0
        check_authority(HeldLease(*head[3:6]), digest, lease.epoch, writer.now_us)
        if binding.workspace.is_directory:
            self._workspaces.validate(binding.workspace)
        check_cursor(prepared.cursor, head[0])
        if not prepared.is_fresh:
            check_append(prepared.events, known_calls=lease.known_calls)
        if prepared.turn is not None:
            _check_continues(writer, key, prepared.turn, head[0])
        deadline = next_deadline(head[5], writer.now_us, lease.ttl_us)
        receipt = _write_batch(writer, lease, prepared, head, deadline)
        return receipt, deadline, head[2] - writer.now_us

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


def _write_batch(
    writer: Writer, lease: SessionLease, prepared: PreparedTurn, head: Row, deadline: int
) -> AppendReceipt:
    key = lease.reveal()[0].key
    first = head[0] + 1
    last = head[0] + len(prepared.rows)
    now = writer.now_us
    operation_id = prepared.operation_id
    id_bytes = operation_id.bytes
    link = batch_link(head[1], lease.session_id, id_bytes, first, now, prepared.headers)
    writer.run_many("transcript.add_event", prepared.rows)
    writer.run(
        "transcript.add_batch",
        scope_key=key.scope,
        session_key=key.session,
        first_sequence=first,
        last_sequence=last,
        recorded_at=now,
        link=link,
        operation_id=id_bytes,
        request_digest=prepared.request_digest,
    )
    writer.run(
        "transcript.advance",
        scope_key=key.scope,
        session_key=key.session,
        last_sequence=last,
        link=link,
        now=now,
        deadline=deadline,
    )
    return AppendReceipt(
        session_id=lease.session_id,
        operation_id=operation_id,
        first_sequence=first,
        last_sequence=last,
        recorded_at=now,
        link=link.hex(),
    )


def _first_receipt(
    writer: Writer, lease: SessionLease, prepared: PreparedTurn
) -> AppendReceipt | None:
    key = lease.reveal()[0].key
    scope = ScopeKey(key.scope)
    known = repeated(writer, scope, prepared.operation_id, "append", prepared.request_digest)
    if known is None:
        return None
    row = writer.one(
        "transcript.batch_of",
        scope_key=key.scope,
        session_key=key.session,
        sequence=known.first_sequence,
    )
    assert row is not None, "the batch that the operation was found by"
    return AppendReceipt(
        session_id=lease.session_id,
        operation_id=prepared.operation_id,
        first_sequence=row[0],
        last_sequence=row[1],
        recorded_at=row[2],
        link=row[3].hex(),
    )


def _check_continues(writer: Writer, key: SessionKey, turn: int, last_sequence: int) -> None:
    row = writer.one(
        "transcript.turn_after",
        scope_key=key.scope,
        session_key=key.session,
        sequence=last_sequence,
    )
    if row is None or row[0] != turn:
        raise InvalidValue("turn", "only the last agent turn can be continued")


def _advance(
    lease: SessionLease, receipt: AppendReceipt, deadline: int, events: Sequence[Event]
) -> None:
    lease.deadline_us = deadline
    lease.known_calls.update([event.call_id for event in events if type(event) is ToolCall])
    if lease.cursor == receipt.first_sequence - 1:
        lease.cursor = receipt.last_sequence


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
