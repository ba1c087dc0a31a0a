"""The append-only transcript of a session, its hash chain, and what its store promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from engrain.contracts.events import Event, StoredEvent
from engrain.contracts.ids import OperationId, SessionId
from engrain.contracts.leases import SessionLease
from engrain.contracts.scope import Scope


class AppendReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """Proof that a batch is durable. Holds no content."""

    session_id: SessionId
    operation_id: OperationId
    first_sequence: int
    last_sequence: int
    recorded_at: int
    link: str
    """Hash-chain link at the batch's end, lowercase hex."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The chain holds over `event_count` events, `erased` of them forgotten."""

    session_id: SessionId
    event_count: int
    erased: int
    link: str


class SourceMarks:
    """Tells by its original id whether an imported event is known, without keeping the ids."""

    def __init__(self, marks: set[bytes], mark_of: Callable[[str], bytes]) -> None:
        self._marks = marks
        self._mark_of = mark_of

    def __contains__(self, source_id: str) -> bool:
        return self._mark_of(source_id) in self._marks

    def add(self, source_id: str) -> None:
        """Notes an event that was appended since."""
        self._marks.add(self._mark_of(source_id))


class TranscriptStore(Protocol):
    """Durable history. Every verb is one transaction."""

    def append_turn(
        self,
        lease: SessionLease,
        events: Sequence[Event],
        *,
        operation_id: OperationId | None = None,
        turn: int | None = None,
    ) -> AppendReceipt:
        """All events or none, durable when it returns.

        `turn` continues the agent turn that began at that sequence; None begins a new one.
        """
        ...

    def replay(
        self, lease: SessionLease, *, is_verified: bool = True, is_bounded: bool = True
    ) -> Iterator[StoredEvent]:
        """The durable history, streamed; when it is exhausted the lease may append.

        Raises `Corrupt` where the chain does not hold and `LimitExceeded` past the replay bounds.
        A caller that keeps none of it, as an import does, may go past them: `is_bounded=False`.
        """
        ...

    def iter_events(
        self, scope: Scope, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> Iterator[StoredEvent]:
        """Events past the exclusive sequence `after`, without a lease; `limit` bounds how many."""
        ...

    def known_sources(self, scope: Scope, session_id: SessionId) -> SourceMarks:
        """Which imported events the session already holds."""
        ...

    def verify(self, scope: Scope, session_id: SessionId) -> Verification:
        """Recomputes every commitment and link; raises `Corrupt` at the first that fails."""
        ...

    def redact(self, scope: Scope, session_id: SessionId, sequences: Sequence[int]) -> int:
        """Removes payloads and salts for good; headers, commitments and the chain stay."""
        ...
