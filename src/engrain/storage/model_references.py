"""Which sessions hold on to a model: asked of every database whose sessions may be bound to one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from engrain.contracts.clock import Clock
from engrain.contracts.errors import NotFound
from engrain.contracts.models import MODEL_KEY
from engrain.storage.database import Database
from engrain.storage.engine import open_database, sqlite_path

_PAGE: Final = 500


class SqlReferenceGuard:
    """Implements `ReferenceGuard` over a home's own database and those that it was told of.

    A home without a database has no sessions. A database that was noted and is gone may come back
    from a backup, so that it keeps its models.
    """

    def __init__(self, database: Path, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def count_sessions(self, reference: str, places: Sequence[str]) -> int:
        own = [str(self._database)] if os.path.lexists(self._database) else []
        return sum(self._count_in(place, reference) for place in (*own, *places))

    def _count_in(self, place: str, reference: str) -> int:
        if not _is_server(place) and not os.path.lexists(sqlite_path(place)):
            raise NotFound("database", place, where=" any more; sessions in it may need the model")
        with closing(open_database(place, self._clock)) as database:
            return sum(_names(payload, reference) for payload in _iter_snapshots(database))


def _is_server(place: str) -> bool:
    return place.startswith(("postgresql://", "postgres://"))


def _iter_snapshots(database: Database) -> Iterator[bytes]:
    """Every session's, of every scope, a page at a time."""
    last = (-1, -1)
    while True:
        with database.read() as reader:
            rows = reader.all(
                "snapshots.list_all", scope_key=last[0], session_key=last[1], limit=_PAGE
            )
        yield from (payload for _, _, payload in rows)
        if len(rows) < _PAGE:
            return
        last = rows[-1][:2]


def _names(payload: bytes, reference: str) -> bool:
    configuration: dict[str, Any] = msgspec.json.decode(payload)["configuration"]
    model = configuration.get(MODEL_KEY)
    return isinstance(model, dict) and model.get("reference") == reference
