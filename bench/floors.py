"""Floors: the least that any code must do for the same durable bytes.

APSW, the product's own pragmas, one table with nothing but key and payload, one transaction a turn,
statements prepared, payloads encoded beforehand. No lease, no cursor, no hash, no index, no check.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from engrain.storage.sqlite.connections import open_connection

CHECKPOINT_PAGES = 2_000
BUSY_WAIT_MS = 60_000


def create_bare(path: Path) -> None:
    """An empty bare database at `path`."""
    connection = open_bare(path, apsw.SQLITE_OPEN_CREATE)
    connection.execute(
        "CREATE TABLE events (event_key INTEGER PRIMARY KEY, payload BLOB NOT NULL) STRICT"
    )
    connection.close()


def open_bare(path: Path, flags: int = 0) -> apsw.Connection:
    """A connection with the pragmas of the product."""
    wanted = apsw.SQLITE_OPEN_READWRITE | flags
    return open_connection(str(path), busy_wait_ms=BUSY_WAIT_MS, flags=wanted)


class BareTurns:
    """Turns stored by one connection, with the log restarted as often as the product does."""

    def __init__(self, path: Path, *, first_key: int = 1) -> None:
        self.connection = open_bare(path)
        self._next = first_key
        self._wal_pages = 0
        self.connection.set_wal_hook(self._note_wal)

    def _note_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def append(self, payloads: Sequence[bytes]) -> None:
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        self.connection.executemany(
            "INSERT INTO events VALUES (?, ?)", enumerate(payloads, self._next)
        )
        execute("COMMIT")
        self._next += len(payloads)
        self.restart_log()

    def restart_log(self) -> None:
        """As the product does between turns, once the log is long enough."""
        if self._wal_pages > CHECKPOINT_PAGES:
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            self._wal_pages = 0

    def close(self) -> None:
        self.connection.close()
