"""Operation ids: one id, one effect, however often a call is repeated."""

from __future__ import annotations

from uuid import UUID

import msgspec


class RecordedOperation(msgspec.Struct, frozen=True):
    """What the store remembers of an operation: its verb, the keyed request digest, its row."""

    verb: str
    request_digest: bytes
    session_id: UUID
    first_sequence: int
    last_sequence: int
    recorded_at: int
