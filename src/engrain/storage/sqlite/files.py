"""Where a SQLite database lives, and how one comes into being.

A new database is built whole under another name and published by a rename while the directory is
locked, so a kill leaves either nothing or a database with its schema. A database that is missing
while its companions remain is `DatabaseMissing`, never a new empty one.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

import apsw

from engrain.contracts import limits
from engrain.contracts.errors import Busy, Corrupt, DatabaseMissing, UnsafeFile
from engrain.contracts.faults import reach
from engrain.storage.migrate import Applied, Migration, load_migrations, migrate, pending
from engrain.storage.sqlite.connections import open_connection
from engrain.system.file_systems import refuse_network_file_system
from engrain.system.locks import FileLock
from engrain.system.private_files import (
    check_database_files,
    check_private_directory,
    create_private_file,
    fsync_directory,
    make_private_directory,
)

MIGRATIONS = load_migrations("engrain.storage.sqlite")

_first_open = RLock()
_POLL_S = 0.02
_CREATING_WAIT_MS = 1_000


class SqliteMigrator:
    """Applies migrations over one connection."""

    def __init__(self, connection: apsw.Connection, clock_us: int) -> None:
        self._connection = connection
        self._clock_us = clock_us

    def list_applied(self) -> list[Applied]:
        has_table = "SELECT 1 FROM sqlite_schema WHERE name = 'migrations'"
        if self._connection.execute(has_table).fetchone() is None:
            return []
        rows = self._connection.execute("SELECT number, checksum FROM migrations ORDER BY number")
        return [Applied(number, checksum) for number, checksum in rows]

    def apply(self, migration: Migration) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, "
                "name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT"
            )
            for statement in migration.statements:
                self._connection.execute(statement)
                reach("migrate.statement")
            self._connection.execute(
                "INSERT INTO migrations VALUES (?, ?, ?, ?)",
                (migration.number, migration.name, migration.checksum, self._clock_us),
            )
            self._connection.execute("COMMIT")
        except BaseException:
            if not self._connection.get_autocommit():
                self._connection.execute("ROLLBACK")
            raise


def assets_of(database: Path) -> Path:
    """The asset folder beside a database: two databases never share one."""
    return database.with_name(database.name + ".assets")


def lock_of(database: Path) -> Path:
    """The lock file beside a database: turnstile of its writers, gate of its migrations."""
    return database.with_name(database.name + ".lock")


def prepare_database(
    path: Path,
    assets: Path,
    *,
    now_us: int,
    migrations: tuple[Migration, ...] = MIGRATIONS,
) -> FileLock:
    """Makes sure that `path` is a safe database of the current schema; its turnstile.

    Creates it only when the database and all its companions are absent (INV-04). What it refuses
    it leaves as it was.
    """
    check_private_directory(path.parent)
    refuse_network_file_system(path.parent)
    with _first_open:
        with _locked_directory(path.parent):
            if not _exists(path):
                _refuse_companions(path, assets)
                _create(path, now_us, migrations)
            check_database_files(path)
            if not (_exists(lock_of(path)) and _exists(assets)):
                _refuse_strangers(path)  # before anything is laid beside a file that is not ours
            _complete(path, assets)
        turnstile = FileLock(lock_of(path))
        try:
            turnstile.acquire(limits.first_open_wait_us)
            try:
                _upgrade(path, now_us, migrations)
            finally:
                turnstile.release()
        except BaseException:
            turnstile.close()
            raise
    return turnstile


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _refuse_companions(path: Path, assets: Path) -> None:
    """A log without its database counts: it would be replayed into whatever takes its name."""
    for companion in (lock_of(path), assets, *_sides_of(path)):
        if _exists(companion):
            raise DatabaseMissing(str(path), str(companion))


def _sides_of(path: Path) -> Iterator[Path]:
    return (path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))


def _new_draft(path: Path, purpose: str) -> Path:
    """An empty private file beside `path`; what a killed process left under its name goes."""
    draft = path.with_name(f".{path.name}.{purpose}")
    for leftover in (draft, *_sides_of(draft)):
        try:
            leftover.unlink(missing_ok=True)
        except OSError as error:
            why = f"cannot be removed or made ({error.strerror})"
            raise UnsafeFile(str(leftover), why) from error
    create_private_file(draft)
    return draft


def _create(path: Path, now_us: int, migrations: tuple[Migration, ...]) -> None:
    draft = _new_draft(path, "creating")
    connection = open_connection(str(draft), busy_wait_ms=_CREATING_WAIT_MS)
    try:
        migrate(SqliteMigrator(connection, now_us), migrations)
    finally:
        connection.close()
    reach("create.publish")
    draft.rename(path)
    fsync_directory(path.parent)


def _complete(path: Path, assets: Path) -> None:
    if not _exists(lock_of(path)):
        create_private_file(lock_of(path))
    if not _exists(assets):
        make_private_directory(assets)
    elif assets.is_symlink():
        raise UnsafeFile(str(assets), "is a symbolic link")
    check_private_directory(assets)


def _refuse_strangers(path: Path) -> None:
    """What is published has a schema: a file without one was cut to nothing, or is not ours.

    Looks before any pragma, since the first of them would write into it.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
    connection = apsw.Connection(str(path), flags=flags)
    connection.set_busy_timeout(limits.busy_wait_us // 1_000)
    try:
        if not SqliteMigrator(connection, 0).list_applied():
            raise Corrupt(f"{path} holds no Engrain database; restore it from a backup")
    finally:
        connection.close()


def _upgrade(path: Path, now_us: int, migrations: tuple[Migration, ...]) -> None:
    _refuse_strangers(path)
    connection = open_connection(str(path), busy_wait_ms=limits.busy_wait_us // 1_000)
    try:
        migrator = SqliteMigrator(connection, now_us)
        applied = migrator.list_applied()
        if pending(applied, migrations):
            _keep_copy(connection, path, applied[-1].number)
            migrate(migrator, migrations)
    finally:
        connection.close()


def _keep_copy(connection: apsw.Connection, path: Path, number: int) -> None:
    """A copy of the database as it is, kept before its schema changes.

    One from an upgrade that did not end is older than this and makes way.
    """
    draft = _new_draft(path, "copying")
    target = apsw.Connection(str(draft), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with target.backup("main", connection, "main") as backup:
            backup.step(-1)
    finally:
        target.close()
    reach("copy.publish")
    draft.rename(path.with_name(f"{path.name}.before-{number + 1:04}"))
    fsync_directory(path.parent)


@contextmanager
def _locked_directory(directory: Path) -> Iterator[None]:
    """Serialises first opens in one directory, over processes, with a bounded wait."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + limits.first_open_wait_us / limits.SECOND_US
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise Busy(f"another process keeps opening a database in {directory}")
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
