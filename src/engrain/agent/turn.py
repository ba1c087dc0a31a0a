"""One agent turn on its way: every step is durable before the next, whatever loop drives it.

A loop asks its model, then plans the calls, runs each through `call`, publishes, and asks again.
It needs nothing else of the journal, and no framework is known here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from engrain.agent.proposals import ModelReply, batch_of, fit_result
from engrain.agent.running import finish_all, finish_first, finish_soon, run_either
from engrain.agent.stores import Door
from engrain.agent.tools import Tool, ToolBody, ToolContext, ToolFailure, ToolSet
from engrain.contracts import limits
from engrain.contracts.errors import Busy, StaleLease, Uncertain
from engrain.contracts.events import Approval, Audit, Event, Failure, ResultStatus, ToolResult
from engrain.contracts.faults import reach
from engrain.contracts.journal import JournaledCall, JournalStore, OpenTurn
from engrain.contracts.leases import SessionLease
from engrain.contracts.text import cut_text, repair_text
from engrain.rules.canonical import read_json
from engrain.rules.reconcile import published

T = TypeVar("T")
Approve = Callable[[JournaledCall, Tool], Awaitable[bool]]
"""Asks a person about one call."""
Emit = Callable[[Event | str], None]
"""Gets events once they are durable, and pieces of text that are on their way."""
_ATTEMPTS = 3


class PlannedCall(msgspec.Struct, frozen=True):
    """A journaled call, the tool behind it (None when there is none that may run) and why not."""

    journaled: JournaledCall
    tool: Tool | None
    refusal: str | None


class ActiveTurn:
    """The turn that a `DurableAgentSession` has open. Loops get it; nobody else makes one."""

    def __init__(
        self,
        run: Door,
        journal: JournalStore,
        lease: SessionLease,
        *,
        tools: ToolSet,
        approve: Approve | None,
        emit: Emit | None,
    ) -> None:
        self._run = run
        self._journal = journal
        self._lease = lease
        self._tools = tools
        self._approve = approve
        self._watcher = emit
        self._notes: list[Audit] = []
        self._pending: list[JournaledCall] = []
        self._said: tuple[Event, ...] = ()
        self.events: list[Event] = []
        """What this turn has put into history so far, the input first."""

    @property
    def is_watched(self) -> bool:
        """Whether anybody sees what `show` is given."""
        return self._watcher is not None

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools to declare to the model; calls to some of them may be refused."""
        return self._tools.declared

    async def open(self, events: Sequence[Event]) -> int:
        """Makes the input durable; the turn's number."""
        receipt = await self._settled(self._journal.open_turn, self._lease, events)
        self.events.extend(events)
        reach("turn.opened")
        return receipt.first_sequence

    async def plan(self, reply: ModelReply) -> tuple[PlannedCall, ...]:
        """Journals every call of the reply before any of them may run."""
        reserves = [self._reserve(requested.name) for requested in reply.calls]
        batch, reasons = batch_of(reply, self._lease.known_calls, reserves)
        journaled = await self._settled(self._journal.plan, self._lease, batch)
        self._pending, self._said = list(journaled), batch.said
        reach("batch.planned")
        proposal: list[Event] = [*batch.said, *(each.call for each in journaled)]
        for event in proposal:
            self._emit(event)
        return tuple(self._planned(*each) for each in zip(journaled, reasons, strict=True))

    async def call(self, planned: PlannedCall, body: ToolBody | None = None) -> ToolResult:
        """Runs the tool once, or refuses it; the result is durable when it returns.

        `body` runs in place of the tool's own, for loops that run tools themselves. What it raises
        becomes a failed result. A cancelled call waits a while for its tool; one that does not end
        leaves the call in doubt.
        """
        refusal = planned.refusal
        approval = None
        if refusal is None and planned.tool is not None and planned.tool.needs_approval:
            approval = await self._ask(planned.journaled, planned.tool)
            refusal = None if approval.is_allowed else "the call was not allowed"
        if refusal is not None or planned.tool is None:
            return await self.refuse(planned.journaled, refusal or "cannot run", approval)
        try:
            await self._start(planned.journaled, approval)
        except asyncio.CancelledError:
            await finish_first(self._close_unrun(planned.journaled))
            raise
        status, text = await _outcome(body or planned.tool.run, planned.journaled)
        reach("tool.ran")
        return await self._complete(planned.journaled, _result_of(planned.journaled, status, text))

    async def call_all(self, planned: Sequence[PlannedCall]) -> list[ToolResult]:
        """Runs the calls side by side; every one has ended when it returns or raises."""
        return await finish_all(self.call(each) for each in planned)

    async def refuse(
        self, journaled: JournaledCall, why: str, approval: Approval | None = None
    ) -> ToolResult:
        """Keeps that the call was not executed, and why."""
        text = f"Not executed: {why}."
        call_id = journaled.call.call_id
        result = ToolResult(call_id=call_id, text=text, status="not_executed", origin="host")
        return await self._complete(journaled, result, approval)

    async def publish(self) -> None:
        """Moves the batch, whose calls all have results, into history."""
        await self._settled(self._journal.publish, self._lease)
        self.events.extend(published(self._said, self._pending))  # type: ignore[arg-type]
        self._pending, self._said = [], ()
        reach("batch.published")

    async def finish(self, events: Sequence[Event]) -> None:
        """Ends the turn with its last events, what was noted before them."""
        events = [*self._notes, *events]
        await self._settled(self._journal.close_turn, self._lease, events)
        self.events.extend(events)
        reach("turn.closed")
        for event in events:
            self._emit(event)

    async def fail(self, failure: Failure) -> bool:
        """Ends the turn with a diagnostic; False when a call is in doubt, which recovery settles.

        Goes by what is durable. Calls that were never started are kept as not executed, results
        that are known as they are. A turn that never was opened, or is closed, is left alone.
        """
        found = await self._find_open()
        if found is None or found.epoch != self._lease.epoch:
            return True
        if found.in_doubt:
            return False
        self._pending, self._said = list(found.calls), found.said
        for each in found.calls:
            if each.state == "planned":
                await self.refuse(each, "the turn failed before it was started")
        if found.calls:
            await self.publish()
        await self.finish([failure])
        return True

    def note(self, name: str, text: str) -> None:
        """Keeps a fact about the run, for people; it enters history when the turn ends."""
        self._notes.append(Audit(name=name, text=cut_text(text, limits.diagnostic_bytes_max)))

    def show(self, delta: str) -> None:
        """Shows a piece of text that is on its way; it is not recorded."""
        self._emit(delta)

    def _emit(self, shown: Event | str) -> None:
        if self._watcher is not None:
            self._watcher(shown)

    async def _start(self, journaled: JournaledCall, approval: Approval | None = None) -> None:
        """Makes it durable that the tool is about to run.

        A lost acknowledgement is settled by reading the journal: this turn's lease is the only one
        that may start its calls, so a start that is there is this one.
        """
        call_id = journaled.call.call_id
        approvals = () if approval is None else (approval,)
        for _ in range(_ATTEMPTS):
            try:
                await self._run(self._journal.start, self._lease, (call_id,), approvals=approvals)
                break
            except Uncertain:
                if await self._is_started(call_id):
                    break
        else:
            raise Busy("the journal cannot be reached", retry_after_s=1.0)
        self._note(journaled, state="started", approval=approval)
        reach("tool.started")

    async def _complete(
        self, journaled: JournaledCall, result: ToolResult, approval: Approval | None = None
    ) -> ToolResult:
        fitted = await self._run(fit_result, result, journaled.reserved_bytes)
        await self._settled(self._journal.complete, self._lease, fitted, approval=approval)
        self._note(journaled, state="completed", approval=approval, result=fitted)
        reach("tool.completed")
        self._emit(fitted)
        return fitted

    def _note(self, journaled: JournaledCall, **changes: Any) -> None:
        changes = {name: value for name, value in changes.items() if value is not None}
        for at, each in enumerate(self._pending):
            if each.call.call_id == journaled.call.call_id:
                self._pending[at] = msgspec.structs.replace(each, **changes)

    def _reserve(self, name: str) -> int:
        tool = self._tools.find(name)
        return limits.tool_result_bytes_max if tool is None else tool.result_bytes_max

    def _planned(self, journaled: JournaledCall, why: str | None) -> PlannedCall:
        tool = self._tools.find_enabled(journaled.call.name)
        if tool is None and why is None:
            why = "there is no such tool, or it is disabled"
        return PlannedCall(journaled, tool, why)

    async def _close_unrun(self, journaled: JournaledCall) -> None:
        """Says of a call that was cancelled on its way to the tool that it never got there."""
        if await self._is_started(journaled.call.call_id):
            text = "The turn was cancelled before the tool was run."
            await self._complete(journaled, _result_of(journaled, "failed", text))

    async def _find_open(self) -> OpenTurn | None:
        return await self._run(self._journal.find_open, self._lease.scope, self._lease.session_id)

    async def _is_started(self, call_id: str) -> bool:
        """Whether the call is started under this lease; `StaleLease` when the turn is not ours."""
        found = await self._find_open()
        if found is None or found.epoch != self._lease.epoch:
            raise StaleLease("the turn was taken over")
        return any(each.call.call_id == call_id for each in found.in_doubt)

    async def _ask(self, journaled: JournaledCall, tool: Tool) -> Approval:
        is_allowed = False if self._approve is None else await self._approve(journaled, tool)
        return Approval(call_id=journaled.call.call_id, is_allowed=is_allowed, origin="user")

    async def _settled(self, verb: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Repeats a verb whose acknowledgement was lost; the same id counts once."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._run(verb, *args, **kwargs)
            except Uncertain as lost:
                if lost.operation_id is not None:
                    kwargs["operation_id"] = lost.operation_id
        return await self._run(verb, *args, **kwargs)


def diagnostic(error: BaseException) -> Failure:
    """A bounded, visible record of why a turn failed; it names the kind of error alone."""
    code = getattr(error, "code", None)
    name = code if isinstance(code, str) else type(error).__name__
    is_cancelled = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
    text = "The turn was cancelled." if is_cancelled else f"The turn failed: {name}."
    return Failure(
        code="cancelled" if is_cancelled else cut_text(name, 128),
        text=cut_text(repair_text(text)[0], limits.diagnostic_bytes_max),
        origin="host",
    )


def _result_of(journaled: JournaledCall, status: ResultStatus, text: str) -> ToolResult:
    call = journaled.call
    origin = f"tool:{call.name}"
    return ToolResult(call_id=call.call_id, text=text, status=status, origin=origin)


async def _outcome(body: ToolBody, journaled: JournaledCall) -> tuple[ResultStatus, str]:
    """Status and text of one run of the tool."""
    arguments = read_json(journaled.call.arguments, bytes_max=limits.event_bytes_max)
    context = ToolContext(call_id=journaled.call.call_id, idempotency_key=journaled.idempotency_key)
    try:
        stop = None if inspect.iscoroutinefunction(body) else context.cancelled.set
        return "completed", _text_of(await finish_soon(run_either(body, context, arguments), stop))
    except ToolFailure as failure:
        return "failed", str(failure)
    except Exception as error:  # noqa: BLE001  (whatever a tool raises is its result)
        return "failed", f"The tool raised {type(error).__name__}."


def _text_of(outcome: object) -> str:
    if outcome is None:
        return ""
    if isinstance(outcome, str):
        return outcome
    raise ToolFailure("The tool returned no text.")
