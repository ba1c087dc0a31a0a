"""The journal: an agent turn's tool calls, each step durable before the next is taken.

The journal lies beside the transcript, which a batch enters whole and in one transaction with the
end of its journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import (
    Conflict,
    InvalidValue,
    LimitExceeded,
    NotFound,
    TurnOpen,
    UnknownEffects,
)
from engrain.contracts.events import Approval, AssistantMessage, Event, ToolCall, ToolResult
from engrain.contracts.ids import Ids, OperationId, SessionId, SessionKey
from engrain.contracts.journal import Batch, JournaledCall, OpenTurn, RecoveryReport
from engrain.contracts.leases import SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.transcript import AppendReceipt
from engrain.contracts.workspace import Workspaces
from engrain.rules.canonical import canonical_bytes, decode_events, encode_event, read_json
from engrain.rules.identity import idempotency_key
from engrain.rules.lease import HeldLease, check_authority
from engrain.rules.reconcile import (
    APPROVAL_BYTES,
    check_batch,
    check_result,
    published,
    recovered,
    report_of,
)
from engrain.rules.transitions import CALL, TURN, advance, may
from engrain.rules.validation import check_append
from engrain.storage.database import Database, Reader, Row, Writer
from engrain.storage.stores.appending import Appender, PreparedTurn, advance_lease
from engrain.storage.stores.operations import acknowledging
from engrain.storage.stores.scopes import Scopes
from engrain.storage.stores.sessions import resolve

_said_decoder = msgspec.json.Decoder(tuple[AssistantMessage, ...])


class SqlJournalStore:
    """Implements `JournalStore` on either engine."""

    def __init__(
        self, database: Database, scopes: Scopes, ids: Ids, workspaces: Workspaces
    ) -> None:
        self._database = database
        self._scopes = scopes
        self._appender = Appender(ids, workspaces)

    def open_turn(
        self,
        lease: SessionLease,
        events: Sequence[Event],
        *,
        operation_id: OperationId | None = None,
    ) -> AppendReceipt:
        check_append(events, known_calls=() if operation_id else lease.known_calls)

        def end(writer: Writer, receipt: AppendReceipt) -> None:
            if _find_turn(writer, lease.reveal()[0].key) is None:
                _add_turn(writer, lease, receipt.first_sequence)

        return self._append(lease, events, operation_id, turn=None, end=end)

    def plan(self, lease: SessionLease, batch: Batch) -> tuple[JournaledCall, ...]:
        turn = self._require_turn(lease)
        if turn.calls and _is_same_batch(turn, batch):
            return turn.calls
        events = check_batch(batch, lease.known_calls)
        check_append([*events, *(ToolResult(call_id=c.call.call_id) for c in batch.calls)])
        calls = self._journaled(lease, turn.turn, batch)
        said = msgspec.json.encode(batch.said)
        rows = [_row_of(lease.reveal()[0].key, at, each) for at, each in enumerate(calls)]

        def body(writer: Writer) -> None:
            state = _check_turn(writer, lease)[3]
            if not may(TURN, state, "plan"):
                raise Conflict("the turn has a pending batch already")
            _set_turn(writer, lease, advance(TURN, state, "plan"), said)
            writer.run_many("journal.add_call", rows)

        self._database.write(lease.reveal()[0].key, body, size=sum(len(r["call"]) for r in rows))
        return calls

    def start(
        self, lease: SessionLease, call_ids: Sequence[str], *, approvals: Sequence[Approval] = ()
    ) -> None:
        given = {approval.call_id: _encode_approval(approval) for approval in approvals}

        def body(writer: Writer) -> None:
            _check_turn(writer, lease)
            for call_id in call_ids:
                row = _find_call(writer, lease, call_id)
                if not may(CALL, row[1], "start"):
                    raise Conflict("the call was started before")
                _set_call(writer, lease, call_id, "start", row, approval=given.get(call_id))

        self._database.write(lease.reveal()[0].key, body)

    def complete(
        self, lease: SessionLease, result: ToolResult, *, approval: Approval | None = None
    ) -> None:
        payload = encode_event(result)
        given = None if approval is None else _encode_approval(approval)
        action = "refuse" if result.status == "not_executed" else "complete"

        def body(writer: Writer) -> None:
            _check_turn(writer, lease)
            row = _find_call(writer, lease, result.call_id)
            if check_result(_call_of(row), result, len(payload)):
                _set_call(
                    writer, lease, result.call_id, action, row, approval=given, result=payload
                )

        self._database.write(lease.reveal()[0].key, body, size=len(payload))

    def publish(
        self, lease: SessionLease, *, operation_id: OperationId | None = None
    ) -> AppendReceipt:
        turn = self._require_turn(lease)
        if not turn.calls:
            raise Conflict("the turn has no pending batch")

        def end(writer: Writer, receipt: AppendReceipt) -> None:
            _demand_same(writer, lease, turn)
            writer.run("journal.remove_calls", **_where(lease))
            _set_turn(writer, lease, advance(TURN, "calling", "publish"), None)

        events = published(turn.said, turn.calls)
        return self._append(lease, events, operation_id, turn=turn.turn, end=end)

    def close_turn(
        self,
        lease: SessionLease,
        events: Sequence[Event],
        *,
        operation_id: OperationId | None = None,
    ) -> AppendReceipt:
        check_append(events, known_calls=() if operation_id else lease.known_calls)
        turn = self._require_turn(lease)

        def end(writer: Writer, receipt: AppendReceipt) -> None:
            state = _check_turn(writer, lease)[3]
            if not may(TURN, state, "close"):
                raise Conflict("the turn has a pending batch")
            _remove_turn(writer, lease)

        return self._append(lease, events, operation_id, turn=turn.turn, end=end)

    def find_open(self, scope: Scope, session_id: SessionId) -> OpenTurn | None:
        _, key = resolve(self._database, self._scopes, scope, session_id)
        with self._database.read() as reader:
            return _read_turn(reader, key)

    def recover(
        self, lease: SessionLease, *, accept_unknown_effects: bool = False
    ) -> RecoveryReport:
        with self._database.read() as reader:
            turn = _read_turn(reader, lease.reveal()[0].key)
        if turn is None:
            return RecoveryReport(session_id=lease.session_id)
        if turn.in_doubt and not accept_unknown_effects:
            naming = tuple(each.naming() for each in turn.in_doubt)
            raise UnknownEffects(lease.session_id, naming)

        def end(writer: Writer, receipt: AppendReceipt) -> None:
            _demand_same(writer, lease, turn)
            _remove_turn(writer, lease)

        self._append(lease, recovered(turn), None, turn=turn.turn, end=end)
        return report_of(lease.session_id, turn)

    def _append(
        self,
        lease: SessionLease,
        events: Sequence[Event],
        operation_id: OperationId | None,
        *,
        turn: int | None,
        end: Callable[[Writer, AppendReceipt], None],
    ) -> AppendReceipt:
        """Appends in the open turn; `end` changes the journal in the same transaction."""
        prepared = self._appender.prepare(lease, events, operation_id, turn)
        key = lease.reveal()[0].key

        def body(writer: Writer) -> tuple[AppendReceipt, int]:
            receipt, deadline, _ = self._appender.write(writer, lease, prepared, turn or 0)
            if _is_new(prepared, receipt):
                end(writer, receipt)
            return receipt, deadline

        with acknowledging(prepared.operation_id):
            receipt, deadline = self._database.write(key, body, size=prepared.size)
        advance_lease(lease, receipt, deadline, events)
        return receipt

    def _require_turn(self, lease: SessionLease) -> OpenTurn:
        with self._database.read() as reader:
            turn = _read_turn(reader, lease.reveal()[0].key)
        if turn is None:
            raise Conflict("the session has no open turn")
        return turn

    def _journaled(self, lease: SessionLease, turn: int, batch: Batch) -> tuple[JournaledCall, ...]:
        secret = lease.reveal()[0].secret
        return tuple(
            JournaledCall(
                call=proposed.call,
                state="planned",
                idempotency_key=idempotency_key(
                    secret,
                    lease.session_id,
                    turn,
                    proposed.call.call_id,
                    _canonical_arguments(proposed.call),
                ),
                reserved_bytes=proposed.reserved_bytes,
            )
            for proposed in batch.calls
        )


def _is_new(prepared: PreparedTurn, receipt: AppendReceipt) -> bool:
    """False when the receipt is that of the same operation, done before."""
    return receipt.first_sequence == (prepared.cursor or 0) + 1


def _canonical_arguments(call: ToolCall) -> bytes:
    return canonical_bytes(read_json(call.arguments, bytes_max=limits.event_bytes_max))


def _where(lease: SessionLease) -> dict[str, Any]:
    key = lease.reveal()[0].key
    return {"scope_key": key.scope, "session_key": key.session}


def _find_turn(reader: Reader, key: SessionKey) -> Row | None:
    return reader.one("journal.find_turn", scope_key=key.scope, session_key=key.session)


def _read_turn(reader: Reader, key: SessionKey) -> OpenTurn | None:
    row = _find_turn(reader, key)
    if row is None:
        return None
    calls = reader.all("journal.list_calls", scope_key=key.scope, session_key=key.session)
    return OpenTurn(
        turn=row[0],
        epoch=row[1],
        opened_at=row[2],
        said=() if row[4] is None else _said_decoder.decode(row[4]),
        calls=tuple(_call_of(call) for call in calls),
    )


def _call_of(row: Row) -> JournaledCall:
    call, *others = decode_events(part for part in (row[0], row[4], row[5]) if part is not None)
    assert isinstance(call, ToolCall)
    approval = next((each for each in others if isinstance(each, Approval)), None)
    result = next((each for each in others if isinstance(each, ToolResult)), None)
    return JournaledCall(
        call=call,
        state=row[1],
        idempotency_key=row[2],
        reserved_bytes=row[3],
        approval=approval,
        result=result,
    )


def _row_of(key: SessionKey, ordinal: int, each: JournaledCall) -> dict[str, Any]:
    return {
        "scope_key": key.scope,
        "session_key": key.session,
        "ordinal": ordinal,
        "call_id": each.call.call_id,
        "call": encode_event(each.call),
        "idempotency_key": each.idempotency_key,
        "reserved_bytes": each.reserved_bytes,
    }


def _is_same_batch(turn: OpenTurn, batch: Batch) -> bool:
    """A plan that is repeated because its acknowledgement was lost."""
    planned = [(each.call, each.reserved_bytes) for each in turn.calls]
    offered = [(each.call, each.reserved_bytes) for each in batch.calls]
    return turn.said == batch.said and planned == offered


def _check_turn(writer: Writer, lease: SessionLease) -> Row:
    """The open turn's row; raises unless this very lease opened it and holds the session."""
    binding, digest = lease.reveal()
    head = writer.one("transcript.head", **_where(lease))
    if head is None:
        raise NotFound("session", lease.session_id)
    check_authority(HeldLease(*head[3:6]), digest, lease.epoch, writer.now_us)
    row = _find_turn(writer, binding.key)
    if row is None:
        raise Conflict("the session has no open turn")
    if row[1] != lease.epoch:
        raise TurnOpen(lease.session_id)
    return row


def _demand_same(writer: Writer, lease: SessionLease, turn: OpenTurn) -> None:
    """The journal that the events were made from is the one that ends now."""
    if _read_turn(writer, lease.reveal()[0].key) != turn:
        raise Conflict("the journal moved while its batch was prepared; try again")


def _find_call(writer: Writer, lease: SessionLease, call_id: str) -> Row:
    row = writer.one("journal.find_call", call_id=call_id, **_where(lease))
    if row is None:
        raise InvalidValue("call_id", "is no call of the pending batch")
    return row


def _set_call(
    writer: Writer,
    lease: SessionLease,
    call_id: str,
    action: str,
    row: Row,
    *,
    approval: bytes | None,
    result: bytes | None = None,
) -> None:
    writer.run(
        "journal.set_call",
        call_id=call_id,
        state=advance(CALL, row[1], action),
        approval=row[4] if approval is None else approval,
        result=result,
        **_where(lease),
    )


def _add_turn(writer: Writer, lease: SessionLease, turn: int) -> None:
    where = _where(lease)
    writer.run("journal.add_turn", turn=turn, epoch=lease.epoch, opened_at=writer.now_us, **where)
    writer.run("journal.mark_session", turn=turn, **where)


def _set_turn(writer: Writer, lease: SessionLease, state: str, said: bytes | None) -> None:
    writer.run("journal.set_turn", state=state, said=said, **_where(lease))


def _remove_turn(writer: Writer, lease: SessionLease) -> None:
    where = _where(lease)
    writer.run("journal.remove_calls", **where)
    writer.run("journal.remove_turn", **where)
    writer.run("journal.mark_session", turn=0, **where)


def _encode_approval(approval: Approval) -> bytes:
    payload = encode_event(approval)
    if len(payload) > APPROVAL_BYTES:
        raise LimitExceeded("approval_bytes_max", APPROVAL_BYTES, len(payload))
    return payload
