"""SQLite connections as Engrain wants them: flags, pragmas, library floor, and typed errors."""

from __future__ import annotations

import errno
import sys

import apsw

from engrain.contracts.errors import (
    Busy,
    Corrupt,
    EngrainError,
    LimitExceeded,
    StorageFull,
    UnsafeFile,
    UnsupportedSystem,
)

SQLITE_FLOOR = 3_051_003
"""SQLite 3.51.3: before it, a WAL reset could lose commits."""

_STATEMENTS_CACHED = 256
_PAGE_CACHE_KIB = 8_192
_WAY_OUT = "restore the database from a copy; `engrain sessions verify` checks one session"


def check_library(version: int | None = None) -> None:
    """Raises `UnsupportedSystem` below the floor (INV-02)."""
    found = version if version is not None else _library_version()
    if found < SQLITE_FLOOR:
        raise UnsupportedSystem(
            f"SQLite {found} is too old, {SQLITE_FLOOR} is needed: pip install --upgrade apsw"
        )


def _library_version() -> int:
    """The library that runs, which need not be the one that APSW was built against."""
    major, minor, patch = (int(part) for part in apsw.sqlite_lib_version().split(".")[:3])
    return min(apsw.SQLITE_VERSION_NUMBER, major * 1_000_000 + minor * 1_000 + patch)


def open_connection(path: str, *, busy_wait_ms: int, flags: int = 0) -> apsw.Connection:
    """A connection with every pragma in its place; it never creates a file unless told to."""
    flags = flags or apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
    connection = apsw.Connection(path, flags=flags, statementcachesize=_STATEMENTS_CACHED)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    # A plan that depends on bound values is made anew for each of them.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.set_busy_timeout(busy_wait_ms)
    for pragma in _pragmas():
        list(connection.execute(f"PRAGMA {pragma}"))
    return connection


def _pragmas() -> tuple[str, ...]:
    full = ("fullfsync = ON", "checkpoint_fullfsync = ON") if sys.platform == "darwin" else ()
    return (
        "synchronous = EXTRA",  # before WAL: the mode's own first writes are durable too
        "journal_mode = WAL",
        "foreign_keys = ON",
        "trusted_schema = OFF",
        "temp_store = MEMORY",
        "secure_delete = ON",
        "cell_size_check = ON",
        "wal_autocheckpoint = 0",  # the writer checkpoints between batches
        f"cache_size = -{_PAGE_CACHE_KIB}",
        *full,
    )


def translate_error(error: apsw.Error, path: str = "database") -> EngrainError:
    """The typed error for what SQLite raised; `path` names the file in those about files."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Busy("the database stayed locked for the whole wait", retry_after_s=0.1)
    if _is_disk_full(error):
        return StorageFull("the disk is full; nothing of this call was kept")
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError | apsw.CantOpenError):
        reason = f"cannot be opened for writing ({type(error).__name__})"
        return UnsafeFile(path, reason, "its folder must be writable too")
    if isinstance(error, apsw.TooBigError):
        return LimitExceeded("sqlite_value_bytes_max", 1_000_000_000)
    if isinstance(error, apsw.NotADBError):
        return Corrupt(f"{path} is not a SQLite database")
    return Corrupt(f"{path}: SQLite reports {type(error).__name__}; {_WAY_OUT}")


def cause_of(error: BaseException) -> str:
    """Why something was not acknowledged, for people: a full disk, else the error's name."""
    return "the disk is full" if _is_disk_full(error) else type(error).__name__


def _is_disk_full(error: BaseException) -> bool:
    if isinstance(error, apsw.FullError):
        return True
    number = getattr(error, "error_errno", None) or getattr(error, "system_errno", None)
    return isinstance(error, apsw.IOError) and number in (errno.ENOSPC, errno.EDQUOT)
