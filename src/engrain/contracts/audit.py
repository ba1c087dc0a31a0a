"""The audit log: what was done to a scope, metadata only, one hash chain a scope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from engrain.contracts.scope import Scope


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry. `facts` hold ids, counts and codes, never content."""

    number: int
    name: str
    facts: dict[str, str | int]
    recorded_at: int
    link: str


class AuditStore(Protocol):
    """The audit log of each scope: append-only, metadata alone, one hash chain a scope."""

    def record(self, scope: Scope, name: str, facts: Mapping[str, str | int]) -> AuditEntry:
        """Adds an entry at the chain's end, durable when it returns."""
        ...

    def list(self, scope: Scope, *, after: int = 0, limit: int = 100) -> tuple[AuditEntry, ...]:
        """Entries past the exclusive number `after`, oldest first."""
        ...

    def verify(self, scope: Scope) -> int:
        """How many entries the chain holds; raises `Corrupt` at the first that does not fit."""
        ...
