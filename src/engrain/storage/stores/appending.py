"""How a batch enters the transcript: prepared before the transaction, written inside it.

The transcript's own appends and the journal's go through here, under the same fences.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue, LimitExceeded, NotFound, TurnOpen
from engrain.contracts.events import KIND_OF, Event, ToolCall
from engrain.contracts.ids import Ids, OperationId, ScopeKey, SessionKey
from engrain.contracts.leases import SessionLease
from engrain.contracts.transcript import AppendReceipt
from engrain.contracts.workspace import Workspaces
from engrain.rules.canonical import encode_event
from engrain.rules.chain import SALT_BYTES, EventHeader, batch_link, commit_event
from engrain.rules.identity import event_source_mark, request_digest
from engrain.rules.lease import HeldLease, check_authority, check_cursor, next_deadline
from engrain.rules.validation import check_append
from engrain.storage.database import Row, Writer
from engrain.storage.stores.operations import repeated


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


class Appender:
    """Prepares batches and writes them, for every store that appends."""

    def __init__(self, ids: Ids, workspaces: Workspaces) -> None:
        self._ids = ids
        self._workspaces = workspaces

    def prepare(
        self,
        lease: SessionLease,
        events: Sequence[Event],
        operation_id: OperationId | None,
        turn: int | None,
    ) -> PreparedTurn:
        """The append, encoded, committed and digested."""
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

    def write(
        self, writer: Writer, lease: SessionLease, prepared: PreparedTurn, open_turn: int = 0
    ) -> tuple[AppendReceipt, int, int]:
        """The receipt, the lease's deadline after it, and how far the clock stepped back.

        `open_turn` is the agent turn that the caller writes for; another one refuses the write.
        """
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
        if head[6] != open_turn:
            raise TurnOpen(lease.session_id)
        if not prepared.is_fresh:
            check_append(prepared.events, known_calls=lease.known_calls)
        if prepared.turn is not None:
            _check_continues(writer, key, prepared.turn, head[0])
        deadline = next_deadline(head[5], writer.now_us, lease.ttl_us)
        receipt = _write_batch(writer, lease, prepared, head, deadline)
        return receipt, deadline, head[2] - writer.now_us


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


def advance_lease(
    lease: SessionLease, receipt: AppendReceipt, deadline: int, events: Sequence[Event]
) -> None:
    """Lets the lease know what its append, durable by now, made of the history."""
    lease.deadline_us = deadline
    lease.known_calls.update([event.call_id for event in events if type(event) is ToolCall])
    if lease.cursor == receipt.first_sequence - 1:
        lease.cursor = receipt.last_sequence
