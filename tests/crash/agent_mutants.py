"""Faults that are planted into a working agent, to show that the harness finds them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from engrain.agent.turn import ActiveTurn
from engrain.contracts.errors import EngrainError
from engrain.contracts.events import Event
from engrain.contracts.faults import reach
from engrain.rules.reconcile import published
from engrain.storage.stores import journal
from engrain.storage.stores.journal import SqlJournalStore

MUTANTS = (
    "no fence",
    "run started calls again",
    "started after the effect",
    "checkpoint in two transactions",
)


def plant(name: str) -> None:
    """Makes this process misbehave from now on."""
    if name == "no fence":
        _forget_the_fence()
    elif name == "started after the effect":
        _start_late()
    elif name == "checkpoint in two transactions":
        _publish_by_halves()
    else:
        assert name == "run started calls again", "its worker does that"


def _forget_the_fence() -> None:
    start = SqlJournalStore.start

    def start_anyway(self: SqlJournalStore, *args: Any, **kwargs: Any) -> None:
        with suppress(EngrainError):
            start(self, *args, **kwargs)

    SqlJournalStore.start = start_anyway  # type: ignore[method-assign]


def _start_late() -> None:
    start, complete = ActiveTurn._start, ActiveTurn._complete

    async def start_nothing(self: ActiveTurn, *_: Any) -> None:
        reach("tool.started")

    async def complete_late(self: ActiveTurn, journaled: Any, result: Any, *args: Any) -> Any:
        if result.status != "not_executed":
            await start(self, journaled)
        return await complete(self, journaled, result, *args)

    ActiveTurn._start = start_nothing  # type: ignore[assignment,method-assign]
    ActiveTurn._complete = complete_late  # type: ignore[method-assign]


def _publish_by_halves() -> None:
    def publish(self: SqlJournalStore, lease: Any, *, operation_id: Any = None) -> Any:
        turn = self._require_turn(lease)
        events: Sequence[Event] = published(turn.said, turn.calls)

        def forget(writer: Any) -> None:
            writer.run("journal.remove_calls", **journal._where(lease))
            journal._set_turn(writer, lease, "open", None)

        self._database.write(lease.reveal()[0].key, forget)
        return self._append(
            lease, events, operation_id, turn=turn.turn, end=lambda writer, receipt: None
        )

    SqlJournalStore.publish = publish  # type: ignore[method-assign]
