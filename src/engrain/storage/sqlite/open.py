"""Opens a SQLite database, in a file or in memory."""

from __future__ import annotations

import secrets
from pathlib import Path

import apsw

from engrain.contracts.clock import Clock
from engrain.storage.migrate import Migration, migrate
from engrain.storage.sqlite.connections import check_library, open_connection, translate_error
from engrain.storage.sqlite.database import DatabaseFile, SqliteDatabase
from engrain.storage.sqlite.files import MIGRATIONS, SqliteMigrator, assets_of, prepare_database
from engrain.system.private_files import locate


def open_file(
    path: Path,
    clock: Clock,
    *,
    assets: Path | None = None,
    migrations: tuple[Migration, ...] = MIGRATIONS,
) -> SqliteDatabase:
    """The database at `path`, made when it and all its companions are absent.

    `assets` is the folder of its media; its own lies beside it, so that two never share one.
    """
    check_library()
    place = locate(path)
    folder = assets_of(place) if assets is None else locate(assets)
    try:
        turnstile = prepare_database(place, folder, now_us=clock.now_us(), migrations=migrations)
        try:
            file = DatabaseFile(str(place), turnstile)
            return SqliteDatabase(lambda wait_ms: _connect(str(place), wait_ms), clock, file)
        except BaseException:
            turnstile.close()
            raise
    except apsw.Error as error:
        raise translate_error(error, str(place)) from error


def open_memory(clock: Clock) -> SqliteDatabase:
    """A database that lives as long as it is open."""
    check_library()
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_MEMORY
    connection = open_connection(f"memory-{secrets.token_hex(8)}", busy_wait_ms=0, flags=flags)
    migrate(SqliteMigrator(connection, clock.now_us()), MIGRATIONS)
    return SqliteDatabase(lambda _wait_ms: connection, clock, None)


def _connect(path: str, busy_wait_ms: int) -> apsw.Connection:
    return open_connection(path, busy_wait_ms=busy_wait_ms)
