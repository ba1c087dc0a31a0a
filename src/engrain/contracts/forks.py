"""Forks: the way on for a session whose tools or prompt have changed."""

from __future__ import annotations

from typing import Protocol

import msgspec

from engrain.contracts.ids import OperationId, SessionId
from engrain.contracts.scope import Scope
from engrain.contracts.sessions import Session
from engrain.contracts.snapshots import SessionSnapshot


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which prefix to take over (`through` must end a turn; None is all of it) and how to go on."""

    through: int | None = None
    title: str | None = None
    snapshot: SessionSnapshot | None = None


class ForkStore(Protocol):
    """Makes forks, each in one transaction."""

    def fork(
        self,
        scope: Scope,
        session_id: SessionId,
        request: ForkRequest,
        *,
        operation_id: OperationId | None = None,
    ) -> Session:
        """A new session from a verified prefix; it records where it came from."""
        ...
