"""Identifiers, as distinct types. UUIDs at the edge, small integers inside.

`ScopeKey`, `SessionKey` are storage keys and never leave the storage layer; cursors seal them.
"""

from __future__ import annotations

from typing import NewType, Protocol
from uuid import UUID

import msgspec

from engrain.contracts.errors import InvalidValue

SessionId = NewType("SessionId", UUID)
EpisodeId = NewType("EpisodeId", UUID)
OperationId = NewType("OperationId", UUID)


def require_id(value: UUID, field: str) -> UUID:
    """`value` itself; raises `InvalidValue` for what is no UUID, such as an id kept as text."""
    if not isinstance(value, UUID):
        raise InvalidValue(field, "must be a UUID; an id kept as text is read with UUID(text)")
    return value


def require_operation(value: OperationId | None) -> OperationId | None:
    """The operation id that a caller chose, or None; raises `InvalidValue` for what is no UUID."""
    if value is not None:
        require_id(value, "operation_id")
    return value


class ScopeKey(msgspec.Struct, frozen=True):
    """Anchor and key of a scope: a random 63-bit number."""

    scope: int


class SessionKey(msgspec.Struct, frozen=True):
    """Anchor and key of a session inside its scope; `session` is below 2**31."""

    scope: int
    session: int


class Ids(Protocol):
    """Where fresh ids and secrets come from."""

    def uuid7(self) -> UUID: ...

    def random_bytes(self, count: int) -> bytes: ...

    def scope_key(self) -> int:
        """A random number in 1 .. 2**63 - 1."""
        ...
