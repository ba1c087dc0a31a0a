"""The journal of an agent turn: what is known of every tool call, whatever happens to the process.

An agent turn begins with its input and ends with its answer or a diagnostic. Between them stands at
most one pending batch of tool calls, kept outside the transcript until every result is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from engrain.contracts import limits
from engrain.contracts.events import Approval, AssistantMessage, Event, ToolCall, ToolResult
from engrain.contracts.ids import OperationId, SessionId
from engrain.contracts.leases import SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.transcript import AppendReceipt

CallState = Literal["planned", "started", "completed"]


class ProposedCall(msgspec.Struct, frozen=True):
    """A call as the model wrote it, and the most that its stored result may take, in bytes."""

    call: ToolCall
    reserved_bytes: int = limits.tool_result_bytes_max


class Batch(msgspec.Struct, frozen=True):
    """Calls that the model proposed together, after the words (if any) that it said before them."""

    calls: tuple[ProposedCall, ...]
    said: tuple[AssistantMessage, ...] = ()


class JournaledCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the pending batch.

    `idempotency_key` follows from session, turn, call and canonical arguments: the same call has
    the same key for ever. `result` is there exactly when the call is `completed`.
    """

    call: ToolCall
    state: CallState
    idempotency_key: str
    reserved_bytes: int
    approval: Approval | None = None
    result: ToolResult | None = None

    def naming(self) -> dict[str, str]:
        """What a person needs to look up what the call did; no arguments."""
        return {
            "call_id": self.call.call_id,
            "tool": self.call.name,
            "idempotency_key": self.idempotency_key,
        }


class OpenTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The unfinished agent turn of a session and its pending batch.

    `turn` is the sequence of its first event; `epoch` that of the lease which opened it.
    """

    turn: int
    epoch: int
    opened_at: int
    said: tuple[AssistantMessage, ...] = ()
    calls: tuple[JournaledCall, ...] = ()

    @property
    def in_doubt(self) -> tuple[JournaledCall, ...]:
        """Calls that were started and have no result: nobody knows what they did."""
        return tuple(each for each in self.calls if each.state == "started")


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What recovery made of an interrupted turn; `turn` is None when there was none.

    Call ids stand by what became of them.
    """

    session_id: SessionId
    turn: int | None = None
    completed: tuple[str, ...] = ()
    not_executed: tuple[str, ...] = ()
    unknown_effects: tuple[str, ...] = ()


class JournalStore(Protocol):
    """One open turn and one pending batch a session. Every verb is one transaction.

    Every verb but `recover` is for the lease that opened the turn. A verb whose acknowledgement
    was lost (`Uncertain`) may be repeated, `start` excepted: its calls are in doubt.
    """

    def open_turn(
        self,
        lease: SessionLease,
        events: Sequence[Event],
        *,
        operation_id: OperationId | None = None,
    ) -> AppendReceipt:
        """Appends the input; until the turn ends nobody else may append (`TurnOpen`)."""
        ...

    def plan(self, lease: SessionLease, batch: Batch) -> tuple[JournaledCall, ...]:
        """Journals the whole batch, with room for every result, before any call is started.

        Raises `InvalidValue` or `LimitExceeded` for a batch that could not be published.
        """
        ...

    def start(
        self, lease: SessionLease, call_ids: Sequence[str], *, approvals: Sequence[Approval] = ()
    ) -> None:
        """Notes that the calls are about to run. A call is started once: `Conflict` after that."""
        ...

    def complete(
        self, lease: SessionLease, result: ToolResult, *, approval: Approval | None = None
    ) -> None:
        """Keeps the result of a started call, or of a planned one that was `not_executed`.

        Raises `LimitExceeded` past the call's reserve, `Conflict` when another result is there.
        """
        ...

    def publish(
        self, lease: SessionLease, *, operation_id: OperationId | None = None
    ) -> AppendReceipt:
        """Moves the batch, every call completed, into history as one append."""
        ...

    def close_turn(
        self,
        lease: SessionLease,
        events: Sequence[Event],
        *,
        operation_id: OperationId | None = None,
    ) -> AppendReceipt:
        """Appends the last events of the turn and ends it; `Conflict` while a batch is pending."""
        ...

    def find_open(self, scope: Scope, session_id: SessionId) -> OpenTurn | None:
        """The unfinished turn, read without a lease."""
        ...

    def recover(
        self, lease: SessionLease, *, accept_unknown_effects: bool = False
    ) -> RecoveryReport:
        """Ends the turn of a process that is gone, in one append. Never runs a tool.

        Completed results stay as they are, planned calls become `not_executed`, started ones
        `unknown_effect`, which needs the caller's word: `UnknownEffects` without it. Recovering
        again reports no turn.
        """
        ...
