"""Faults that are planted into a writing process, to show that the checks of a crash find them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec

from crash.writing import Ask, SessionLoop
from engrain.services.sessions import SessionWriter
from engrain.storage.sqlite.commits import Work
from engrain.storage.sqlite.database import SqliteDatabase
from engrain.storage.stores import appending


def plant(name: str) -> None:
    """Makes this process misbehave from now on."""
    {
        "acknowledge before commit": _acknowledge_before_commit,
        "write under a lost lease": _write_under_a_lost_lease,
        "repeat under a new id": _repeat_under_a_new_id,
        "commit by halves": _commit_by_halves,
    }[name]()


def _acknowledge_before_commit() -> None:
    """Every write is committed by the next one, after its own caller was told."""
    enter = SqliteDatabase._enter

    def acknowledge(self: SqliteDatabase, batch: list[Work]) -> None:
        for work in batch:
            work.is_durable = True

    def enter_late(self: SqliteDatabase, wait_s: float) -> None:
        if not self._writer.get_autocommit():
            self._writer.execute("COMMIT")
        enter(self, wait_s)

    SqliteDatabase._acknowledge = acknowledge  # type: ignore[method-assign]
    SqliteDatabase._enter = enter_late  # type: ignore[method-assign]


def _write_under_a_lost_lease() -> None:
    appending.check_authority = lambda *_: None  # type: ignore[assignment]


def _repeat_under_a_new_id() -> None:
    append = SessionLoop._append

    def append_anew(self: SessionLoop, writer: SessionWriter, ask: Ask) -> Any:
        return append(self, writer, Ask(ask.marker, uuid4()))

    SessionLoop._append = append_anew  # type: ignore[method-assign]


def _commit_by_halves() -> None:
    """A turn becomes two commits; who is not killed between them sees no difference."""

    def append_halves(self: SessionWriter, turn: Any, *, operation_id: Any = None) -> Any:
        middle = len(turn) // 2
        append = self._transcript.append_turn
        begun = append(self._lease, turn[:middle]).first_sequence
        ended = append(self._lease, turn[middle:], turn=begun, operation_id=operation_id)
        return msgspec.structs.replace(ended, first_sequence=begun)

    SessionWriter.append = append_halves  # type: ignore[method-assign]
