"""When a repeated operation is answered from memory, refused, or run."""

from __future__ import annotations

from hmac import compare_digest
from uuid import UUID

from engrain.contracts import limits
from engrain.contracts.errors import OperationMismatch, OperationTooOld
from engrain.contracts.operations import RecordedOperation


def uuid7_time_us(value: UUID) -> int | None:
    """The time inside a UUID of version 7, in microseconds; None for any other version."""
    return (value.int >> 80) * 1_000 if value.version == 7 else None


def decide_repeat(
    known: RecordedOperation | None, operation_id: UUID, verb: str, digest: bytes, now_us: int
) -> bool:
    """True when the first receipt answers, False when the operation is to be run.

    Raises `OperationMismatch` when the id stands for another request, and `OperationTooOld` for an
    id from before the retention floor, whose outcome may have been forgotten.
    """
    if known is not None:
        if known.verb != verb or not compare_digest(known.request_digest, digest):
            raise OperationMismatch("the operation id was used for another request")
        return True
    made_us = uuid7_time_us(operation_id)
    if made_us is not None and now_us - made_us > limits.operation_retention_us:
        raise OperationTooOld("the operation id is older than the retention floor; use a new one")
    return False
