"""Files that only their owner can touch: checked by name, never opened to be checked."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from engrain.contracts.errors import UnsafeFile


def check_private_directory(path: Path) -> None:
    """Raises `UnsafeFile` unless `path` is our own directory that no other may write to."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise UnsafeFile(str(path), "does not exist", f"run: mkdir -m 700 {path}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeFile(str(path), "is not a directory")
    if found.st_uid != os.geteuid():
        raise UnsafeFile(str(path), "belongs to another user")
    if found.st_mode & 0o022:
        raise UnsafeFile(str(path), "is writable by others", f"run: chmod go-w {path}")


def check_private_file(path: Path, *, may_be_absent: bool = False) -> None:
    """Raises `UnsafeFile` unless `path` is a regular file of ours, one link, mode 0600."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        if may_be_absent:
            return
        raise UnsafeFile(str(path), "does not exist") from None
    if not stat.S_ISREG(found.st_mode):
        raise UnsafeFile(str(path), "is not a regular file")
    if found.st_uid != os.geteuid():
        raise UnsafeFile(str(path), "belongs to another user")
    if found.st_nlink != 1:
        raise UnsafeFile(str(path), "has more than one name (hard link)")
    if stat.S_IMODE(found.st_mode) != 0o600:
        raise UnsafeFile(str(path), "is not private", f"run: chmod 600 {path}")


def check_database_files(path: Path) -> None:
    """Raises `UnsafeFile` unless the database and every file beside it are private."""
    check_private_file(path)
    for end in ("-wal", "-shm", "-journal", ".lock"):
        check_private_file(path.with_name(path.name + end), may_be_absent=True)


def create_private_file(path: Path) -> None:
    """A new empty file of mode 0600; `FileExistsError` when the name is taken."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def make_private_directory(path: Path) -> None:
    """A new directory of mode 0700."""
    path.mkdir(mode=0o700)
    path.chmod(0o700)


def fsync_directory(path: Path) -> None:
    """Makes names that were added to or removed from a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
