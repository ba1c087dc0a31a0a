"""Files that only their owner can touch: checked by name, never opened to be checked (INV-01).

To open a pipe can wait for ever, and to close a database's file would drop SQLite's locks. What is
checked stays as it was checked, because nobody else may change names in its directory.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
from pathlib import Path

from engrain.contracts.errors import EngrainError, StorageFull, UnsafeFile

_KINDS = {
    stat.S_IFLNK: "is a symbolic link",
    stat.S_IFDIR: "is a directory",
    stat.S_IFIFO: "is a pipe",
    stat.S_IFSOCK: "is a socket",
}
_OURS = re.compile(r"engrain\.sqlite3(-wal|-shm|-journal|\.lock)?")
"""Names that only Engrain gives. Whose any other file is cannot be known without opening it."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def locate(path: Path) -> Path:
    """`path` as an absolute one, the links above it resolved; it need not exist.

    Raises `UnsafeFile` when it counts from a working directory that was removed, and for a ring
    of links.
    """
    try:
        return path.parent.resolve() / path.name
    except FileNotFoundError:
        raise UnsafeFile(str(path), "the working directory was removed") from None
    except (OSError, RuntimeError):
        raise UnsafeFile(str(path), "the way there is a ring of links") from None


def check_private_directory(path: Path) -> None:
    """Raises `UnsafeFile` unless `path` is our own directory that no other may write to.

    A link to one passes: the caller has resolved the path, or accepts where it leads.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        raise UnsafeFile(str(path), "does not exist", _run("mkdir -m 700", path)) from None
    except OSError as error:
        raise _unusable(path, "reached", error) from error
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeFile(str(path), "is not a directory")
    _check_owner(path, found)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        needed = "nobody but its owner may write to it; choose or make a private directory"
        raise UnsafeFile(str(path), f"is writable by others ({_mode(found)})", needed)


def check_private_file(path: Path, *, may_be_absent: bool = False) -> None:
    """Raises `UnsafeFile` unless `path` is a regular file of ours, one link, mode 0600."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        if may_be_absent:
            return
        raise UnsafeFile(str(path), "does not exist") from None
    except OSError as error:
        raise _unusable(path, "reached", error) from error
    if not stat.S_ISREG(found.st_mode):
        raise UnsafeFile(str(path), _KINDS.get(stat.S_IFMT(found.st_mode), "is a device"))
    _check_owner(path, found)
    if found.st_nlink != 1:
        raise UnsafeFile(str(path), "has more than one name (hard link)")
    if stat.S_IMODE(found.st_mode) != 0o600:
        needed = "only its owner may read and write a database"
        remedy = _run("chmod 600", path) if _OURS.fullmatch(path.name) else needed
        fault = "is not private" if found.st_mode & 0o077 else "has an unfit mode"
        raise UnsafeFile(str(path), f"{fault} ({_mode(found)} instead of 0600)", remedy)


def check_database_files(path: Path) -> None:
    """Raises `UnsafeFile` unless the database and every file beside it are private."""
    check_private_file(path)
    for end in ("-wal", "-shm", "-journal", ".lock"):
        check_private_file(path.with_name(path.name + end), may_be_absent=True)


def create_private_file(path: Path) -> None:
    """A new empty file of mode 0600, whatever the umask; `FileExistsError` when the name is taken.

    Raises `StorageFull` or `UnsafeFile` when the directory takes no file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        raise
    except OSError as error:
        raise _unusable(path, "created", error) from error
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def make_private_directory(path: Path) -> None:
    """A new directory of mode 0700, whatever the umask; `FileExistsError` when the name is taken.

    Raises `StorageFull` or `UnsafeFile` when the directory above takes none.
    """
    try:
        path.mkdir(mode=0o700)
        path.chmod(0o700)
    except FileExistsError:
        raise
    except OSError as error:
        raise _unusable(path, "created", error) from error


def fsync_directory(path: Path) -> None:
    """Makes names that were added to or removed from a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _run(command: str, path: Path) -> str:
    return f"run: {command} {shlex.quote(str(path))}"


def _mode(found: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(found.st_mode):04o}"


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise UnsafeFile(str(path), "belongs to another user")


def _unusable(path: Path, verb: str, error: OSError) -> EngrainError:
    if error.errno in _FULL:
        return StorageFull(f"{path}: cannot be {verb}, the disk is full")
    return UnsafeFile(str(path), f"cannot be {verb} ({error.strerror})")
