"""Operation ids: what was done under one, and whether a repeat is the same request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from engrain.contracts.errors import Uncertain
from engrain.contracts.ids import OperationId, ScopeKey, SessionKey
from engrain.contracts.operations import RecordedOperation
from engrain.rules.retry import decide_repeat
from engrain.storage.database import Reader, Writer


def find_operation(
    reader: Reader, scope: ScopeKey, operation_id: OperationId
) -> RecordedOperation | None:
    """What is remembered of the operation in this scope."""
    row = reader.one("operations.find", scope_key=scope.scope, operation_id=operation_id.bytes)
    if row is None:
        return None
    return RecordedOperation(row[0], row[1], UUID(bytes=row[2]), row[3], row[4], row[5])


def repeated(
    writer: Writer, scope: ScopeKey, operation_id: OperationId, verb: str, digest: bytes
) -> RecordedOperation | None:
    """The first run of this operation, None when it is to be run now.

    Until the transaction ends nobody else finds out about the same id, whatever their verb and
    session. Raises `OperationMismatch` or `OperationTooOld` (INV-13).
    """
    writer.run("operations.lock", scope_key=scope.scope, operation_id=operation_id.bytes)
    known = find_operation(writer, scope, operation_id)
    is_repeat = decide_repeat(known, operation_id, verb, digest, writer.now_us)
    return known if is_repeat else None


def record_operation(
    writer: Writer, session: SessionKey, operation_id: OperationId, verb: str, digest: bytes
) -> None:
    """Remembers an operation that creates no row of its own."""
    writer.run(
        "operations.add",
        scope_key=session.scope,
        operation_id=operation_id.bytes,
        verb=verb,
        session_key=session.session,
        request_digest=digest,
        recorded_at=writer.now_us,
    )


@contextmanager
def acknowledging(operation_id: OperationId) -> Iterator[None]:
    """Gives a lost acknowledgement the id to repeat the call with."""
    try:
        yield
    except Uncertain as lost:
        raise Uncertain(lost.message, operation_id) from lost
