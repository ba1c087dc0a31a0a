"""Ids and marks that follow from coordinates under a scope's secret, never from content.

An id that was derived from words could be tested against a guess after the words are erased; one
derived from where they stood cannot. Marks are what may outlive erasure: without the secret, which
`everything(scope)` destroys, they say nothing.
"""

from __future__ import annotations

import hmac
from struct import pack
from uuid import UUID

_HASH = "sha256"


def _keyed(secret: bytes, domain: str, parts: tuple[bytes, ...]) -> bytes:
    count = len(parts)
    lengths = pack(f">{count + 2}Q", count, len(domain), *map(len, parts))
    return hmac.digest(secret, b"".join((lengths, domain.encode(), *parts)), _HASH)


def uuid8(raw: bytes) -> UUID:
    """A UUID of version 8 (RFC 9562) from the first 16 bytes of a keyed hash."""
    value = int.from_bytes(raw[:16], "big")
    value = (value & ~(0xF << 76)) | (0x8 << 76)
    return UUID(int=(value & ~(0x3 << 62)) | (0x2 << 62))


def episode_id(secret: bytes, session_id: UUID, first: int, last: int, ordinal: int) -> UUID:
    """An episode's id, from the events that it came from and its place among their episodes."""
    where = b"%d %d %d" % (first, last, ordinal)
    return uuid8(_keyed(secret, "episode", (session_id.bytes, where)))


def session_source_mark(secret: bytes, source: tuple[str, str]) -> bytes:
    """The duplicate mark of an imported session: (format, original id)."""
    return _keyed(secret, "session source", tuple(part.encode() for part in source))[:16]


def event_source_mark(secret: bytes, session_id: UUID, source_id: str) -> bytes:
    """The duplicate mark of an imported event in its session."""
    return _keyed(secret, "event source", (session_id.bytes, source_id.encode()))[:16]


def import_operation_id(secret: bytes, session_id: UUID, marks: tuple[bytes, ...]) -> UUID:
    """The operation id of the append that imports exactly these events."""
    return uuid8(_keyed(secret, "import", (session_id.bytes, *marks)))


def idempotency_key(
    secret: bytes, session_id: UUID, turn: int, call_id: str, arguments: bytes
) -> str:
    """What a tool call is known by outside, for ever; `arguments` are canonical bytes."""
    where = (session_id.bytes, b"%d" % turn, call_id.encode(), arguments)
    return str(uuid8(_keyed(secret, "idempotency", where)))


def twin_mark(secret: bytes, normal_text: str) -> bytes:
    """What near-identical texts of one scope share; `normal_text` comes from `rules.twins`."""
    return _keyed(secret, "twin", (normal_text.encode(),))[:8]


def request_digest(secret: bytes, verb: str, parts: tuple[bytes, ...]) -> bytes:
    """Tells whether a repeated operation id comes with the same request."""
    return _keyed(secret, verb, parts)[:16]


def token_digest(token: bytes) -> bytes:
    """What the database keeps of a lease token."""
    return hmac.digest(b"engrain lease", token, _HASH)
