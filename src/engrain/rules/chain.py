"""The hash chain that can forget.

Each event is bound by a salted commitment; a chain link binds one batch's headers and commitments
to all that came before. When an event is erased its payload and salt go, the commitment stays, and
every link can still be recomputed (INV-11). Without the salt nobody can test a guess of the words.

Every field is fixed in width or carries its length, and each hash begins with its own domain, so
no two different batches have one encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from struct import Struct
from uuid import UUID

from engrain.contracts.events import EVENT_KINDS

SALT_BYTES = 16

_EVENT_DOMAIN = b"engrain event 1\0"
_LINK_DOMAIN = b"engrain link 1\0\0"
_GENESIS_DOMAIN = b"engrain genesis 1"
_AUDIT_DOMAIN = b"engrain audit 1\0"
_BATCH = Struct(">16s16sQqI")
_TURN = Struct(">Q")
_NO_ASSETS = b"\0\0\0\0"

EventHeader = tuple[str, int, bytes]
"""(kind, turn, commitment) of one event."""


def commit_event(salt: bytes, payload: bytes) -> bytes:
    """The commitment to one event's payload under its salt."""
    return sha256(_EVENT_DOMAIN + salt + payload).digest()


def genesis_link(session_id: UUID) -> bytes:
    """The link before a session's first batch."""
    return sha256(_GENESIS_DOMAIN + session_id.bytes).digest()


def first_uncommitted(
    commitments: Sequence[bytes], salts: Sequence[bytes | None], payloads: Sequence[bytes | None]
) -> int | None:
    """Index of the first payload that is not the one committed to; an erased one passes."""
    made = [
        commitment if payload is None else sha256(_EVENT_DOMAIN + (salt or b"") + payload).digest()
        for commitment, salt, payload in zip(commitments, salts, payloads, strict=True)
    ]
    if made == list(commitments):
        return None
    return next(at for at, it in enumerate(zip(made, commitments, strict=True)) if it[0] != it[1])


def batch_link(
    previous: bytes,
    session_id: UUID,
    operation_id: bytes,
    first_sequence: int,
    recorded_at: int,
    headers: Sequence[EventHeader],
) -> bytes:
    """The link at the end of a batch, over the previous link, its headers and commitments.

    An event's id is its session's id and its sequence, so both stand in the batch's header. The
    count of asset commitments follows each event's own; no event has any yet.
    """
    head = _BATCH.pack(session_id.bytes, operation_id, first_sequence, recorded_at, len(headers))
    parts = [_LINK_DOMAIN, previous, head]
    packed = -1, b""
    for kind, turn, commitment in headers:
        if turn != packed[0]:  # most batches are of one turn
            packed = turn, _TURN.pack(turn)
        parts += packed[1], _KINDS.get(kind) or _sized(kind), commitment, _NO_ASSETS
    return sha256(b"".join(parts)).digest()


def _sized(kind: str) -> bytes:
    name = kind.encode()
    return len(name).to_bytes() + name


_KINDS = {kind: _sized(kind) for kind in EVENT_KINDS}


def audit_link(previous: bytes, number: int, recorded_at: int, body: bytes) -> bytes:
    """The link of one audit entry; `body` is its canonical name and facts."""
    head = Struct(">QqI").pack(number, recorded_at, len(body))
    return sha256(_AUDIT_DOMAIN + previous + head + body).digest()
