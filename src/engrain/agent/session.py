"""A session that an agent works in: resumed as it was left, one turn at a time, nothing lost.

The session is poisoned from before the first await of a turn until the turn is durably closed: a
turn that was dropped or that failed without an ending blocks the next one until it is recovered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic
from types import TracebackType
from typing import Any

import msgspec

from engrain.agent.loop import Description, Loop
from engrain.agent.proposals import said_by_model
from engrain.agent.running import finish_first
from engrain.agent.stores import AgentStores, WatchedDoor
from engrain.agent.tools import ToolSet
from engrain.agent.turn import ActiveTurn, Approve, Emit, diagnostic
from engrain.contracts import limits
from engrain.contracts.errors import EngrainError, Refused, StaleLease, TurnOpen
from engrain.contracts.events import Audit, Event, StoredEvent, ToolCall, UserMessage
from engrain.contracts.ids import SessionId
from engrain.contracts.journal import RecoveryReport
from engrain.contracts.leases import SessionLease
from engrain.contracts.scope import Scope
from engrain.contracts.sessions import Session
from engrain.contracts.snapshots import SessionSnapshot
from engrain.contracts.text import repair_text
from engrain.contracts.workspace import Workspace

_RENEWALS_A_LEASE = 3


class TurnResult(msgspec.Struct, frozen=True):
    """A finished turn: what the loop answered, and the events it put into history."""

    output: Any
    text: str
    turn: int
    events: tuple[Event, ...]


class DurableAgentSession:
    """One agent at work in one session; `async with` resumes and closes it.

    Not for several tasks at once: a second turn is refused while one runs.
    """

    def __init__(
        self,
        stores: AgentStores,
        loop: Loop,
        scope: Scope,
        session_id: SessionId,
        *,
        workspace: Workspace | None = None,
        approve: Approve | None = None,
        lease_ttl_us: int = limits.lease_ttl_us,
    ) -> None:
        self._stores = stores
        self._run = WatchedDoor(stores.run)
        self._loop = loop
        self._scope = scope
        self._session_id = session_id
        self._workspace = workspace
        self._approve = approve
        self._lease_ttl_us = lease_ttl_us
        self._description = Description((), {})
        self._tools = ToolSet(())
        self._lease: SessionLease | None = None
        self._running: asyncio.Task[Any] | None = None
        self._is_poisoned = False
        self._is_stale = False
        self._touched_s = 0.0
        self._history: list[StoredEvent] = []
        self.recovered = RecoveryReport(session_id=session_id)
        """What the last recovery made of a turn that another process left open."""

    @property
    def session_id(self) -> SessionId:
        return self._session_id

    @property
    def history(self) -> tuple[StoredEvent, ...]:
        """Every event of the session, oldest first, as it was verified and appended since."""
        return tuple(self._history)

    @property
    def enabled_tools(self) -> tuple[str, ...]:
        return self._tools.enabled

    def snapshot(self) -> SessionSnapshot:
        """What this session is bound to: configuration and whole tool authority."""
        return self._description.snapshot()

    def enable_tools(self, names: Iterable[str]) -> None:
        """Lets exactly these tools run, in this process; the authority stays what it is."""
        self._tools.enable(names)

    async def resume(self, *, accept_unknown_effects: bool = False) -> RecoveryReport:
        """Takes the session's lease, replays it, and closes what another process left open.

        Raises `SessionBusy` while it has a writer, `SnapshotMismatch` when agent or tools differ,
        and `UnknownEffects` with the calls in doubt. No tool runs and no model is asked.
        """
        self._refuse_running()
        if self._lease is not None:
            await self.close()
        await self._read_loop()
        await finish_first(self._claim())
        try:
            lease = self._holding()
            if lease.workspace.is_directory:
                await self._run(self._stores.workspaces.validate, lease.workspace)
            await self._replay(lease)
            await self._run(self._stores.snapshots.bind, lease, self.snapshot())
            self._is_poisoned = True
            return await self.recover(accept_unknown_effects=accept_unknown_effects)
        except BaseException:
            with suppress(EngrainError):
                await finish_first(self._release())
            raise

    async def recover(self, *, accept_unknown_effects: bool = False) -> RecoveryReport:
        """Closes an unfinished turn honestly, as often as it is called; runs no tool.

        Raises `UnknownEffects` unless a call in doubt is accepted as such.
        """
        self._refuse_running()
        lease = self._holding()
        await self._run.settle()
        report = await self._run(
            self._stores.journal.recover, lease, accept_unknown_effects=accept_unknown_effects
        )
        if report.turn is not None:
            self.recovered = report
        await self._read_further()
        self._is_poisoned = False
        return report

    async def run(self, prompt: str | Sequence[Event]) -> TurnResult:
        """One turn, durable when it returns.

        Raises what the model or the loop raised, after its diagnostic was kept. `TurnOpen` when
        the turn before this one was left open, `StaleLease` when another process took over.
        """
        events = _input_of(prompt)
        self._arm()
        return await self._take_turn(events, None)

    async def run_stream(
        self, prompt: str | Sequence[Event]
    ) -> AsyncIterator[Event | str | TurnResult]:
        """One turn as it happens: pieces of text, events once they are durable, the result last.

        Leaving the iteration early cancels the turn, which is closed before this returns.
        """
        events = _input_of(prompt)
        self._arm()
        shown: asyncio.Queue[Event | str | None] = asyncio.Queue()
        task = asyncio.create_task(self._take_turn(events, shown.put_nowait))
        self._running = task
        task.add_done_callback(lambda _: shown.put_nowait(None))
        try:
            while (item := await shown.get()) is not None:
                yield item
            yield await task
        finally:
            task.cancel()
            await finish_first(_ended(task))

    async def set_title(self, title: str) -> Session:
        """Names the session anew."""
        return await self._run(
            self._stores.sessions.set_title, self._scope, self._session_id, title
        )

    async def close(self) -> None:
        """Ends what still runs and frees the session durably. Closing twice is harmless."""
        if self._running is not None and self._running is not asyncio.current_task():
            self._running.cancel()
            await finish_first(_ended(self._running))
        if self._lease is not None:
            await finish_first(self._release())

    async def __aenter__(self) -> DurableAgentSession:
        await self.resume()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
            return
        with suppress(EngrainError):  # the error on its way matters more; expiry frees the rest
            await self.close()

    def _arm(self) -> None:
        """Poisons the session for a turn; no await may come between this and the turn."""
        self._refuse_running()
        self._holding()
        if self._is_poisoned:
            raise TurnOpen(self._session_id)
        self._is_poisoned = True

    async def _take_turn(self, events: Sequence[Event], emit: Emit | None) -> TurnResult:
        self._running = asyncio.current_task()
        turn = ActiveTurn(
            self._run,
            self._stores.journal,
            self._holding(),
            tools=self._tools,
            approve=self._approve,
            emit=emit,
        )
        try:
            async with self._renewing():
                return await self._drive(turn, events)
        except GeneratorExit:  # dropped: nothing can be awaited any more, recovery closes the turn
            raise
        except BaseException as error:
            await self._end_failed(turn, error)
            raise
        finally:
            self._running = None

    async def _drive(self, turn: ActiveTurn, events: Sequence[Event]) -> TurnResult:
        await self._renew_after_a_pause()
        number = await turn.open(events)
        self._tools.name_in_history(
            each.event.name for each in self._history if isinstance(each.event, ToolCall)
        )
        answer = await self._loop.run(turn, [each.event for each in self._history])
        await turn.finish(said_by_model(answer.text) or [_blank()])
        self._is_poisoned = False
        self._touched_s = monotonic()
        await self._read_further()
        return TurnResult(answer.output, answer.text, number, tuple(turn.events))

    async def _end_failed(self, turn: ActiveTurn, error: BaseException) -> None:
        """Closes the turn with a diagnostic; where it cannot, the session stays poisoned."""
        if not self._is_poisoned:
            return
        with suppress(EngrainError):
            if await finish_first(turn.fail(diagnostic(error))):
                await self._read_further()
                self._is_poisoned = False

    @asynccontextmanager
    async def _renewing(self) -> AsyncIterator[None]:
        """Prolongs the lease meanwhile; a lost one cancels the body and raises `StaleLease`."""
        owner = asyncio.current_task()
        assert owner is not None, "a coroutine runs in a task"
        renewal = asyncio.create_task(self._renew(owner))
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_stale:
                raise
            raise StaleLease("another writer took the session over during the turn") from None
        finally:
            renewal.cancel()

    async def _renew(self, owner: asyncio.Task[Any]) -> None:
        lease = self._holding()
        pause = lease.ttl_us / limits.SECOND_US / _RENEWALS_A_LEASE
        while True:
            await asyncio.sleep(pause)
            try:
                await self._run(self._stores.leases.renew, lease)
            except StaleLease:
                self._is_stale = True
                owner.cancel()
                return
            except EngrainError:  # a busy database; the next renewal is before the deadline
                continue

    async def _read_loop(self) -> None:
        """The tools anew; those that were disabled stay so."""
        disabled = {tool.name for tool in self._description.tools} - set(self._tools.enabled)
        self._description = await self._loop.describe()
        self._tools = ToolSet(self._description.tools)
        self._tools.enable(set(self._tools.enabled) - disabled)

    async def _renew_after_a_pause(self) -> None:
        """Between turns nobody prolongs the lease: one that ran out goes on if nobody took it."""
        lease = self._holding()
        if monotonic() - self._touched_s > lease.ttl_us / limits.SECOND_US / _RENEWALS_A_LEASE:
            await self._run(self._stores.leases.renew, lease)

    async def _claim(self) -> None:
        self._is_stale = False
        self._touched_s = monotonic()
        self._lease = await self._run(
            self._stores.leases.claim,
            self._scope,
            self._session_id,
            ttl_us=self._lease_ttl_us,
            workspace=self._workspace,
        )

    async def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            await self._run(self._stores.leases.release, lease)

    async def _replay(self, lease: SessionLease) -> None:
        self._history = await self._run(lambda: list(self._stores.transcript.replay(lease)))

    async def _read_further(self) -> None:
        """Takes in what was appended since."""
        last = self._history[-1].sequence if self._history else 0
        iter_events = self._stores.transcript.iter_events
        self._history += await self._run(
            lambda: list(iter_events(self._scope, self._session_id, after=last))
        )

    def _holding(self) -> SessionLease:
        if self._lease is None:
            raise Refused("the session is not resumed, or closed")
        return self._lease

    def _refuse_running(self) -> None:
        if self._running is not None and self._running is not asyncio.current_task():
            raise Refused("a turn of this session is running")


def _input_of(prompt: str | Sequence[Event]) -> list[Event]:
    if not isinstance(prompt, str):
        return list(prompt)
    text, is_repaired = repair_text(prompt)
    return [UserMessage(text=text, repaired=is_repaired)]


def _blank() -> Audit:
    return Audit(name="blank_answer", text="The model ended the turn without words.")


async def _ended(task: asyncio.Task[Any]) -> None:
    """Waits for its end, whatever it is."""
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # whoever awaits the task gets it
