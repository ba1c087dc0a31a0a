"""What a session was made with: semantic configuration and exact tool authority."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from engrain.contracts.ids import SessionId
from engrain.contracts.leases import SessionLease
from engrain.contracts.scope import Scope


class ToolAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """One tool that the session may ever call."""

    name: str
    schema: dict[str, Any]
    implementation: str
    limits: dict[str, int] = {}


class SessionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Written once, only for an empty session; a resume must offer the identical one."""

    configuration: dict[str, Any]
    tools: tuple[ToolAuthority, ...] = ()


class SnapshotStore(Protocol):
    """Keeps the one snapshot of each session, outside the compactable transcript."""

    def bind(self, lease: SessionLease, snapshot: SessionSnapshot) -> None:
        """Writes it for an empty session, else demands the identical one.

        Raises `SnapshotMismatch` when it differs, or when there is history but no snapshot.
        """
        ...

    def read(self, scope: Scope, session_id: SessionId) -> SessionSnapshot: ...
