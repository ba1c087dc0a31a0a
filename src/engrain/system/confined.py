"""Files below one folder, for callers that nobody trusts: no path and no link leads out of it.

Every part of a path is opened below the one before it and never followed when it is a link, so that
a link put there in the middle of a walk is met by the same refusal. Only regular files are opened,
and the files of a memory never: closing a descriptor of a database would drop its locks.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from engrain.contracts.errors import InvalidValue, LimitExceeded, UnsafeFile
from engrain.system.private_files import fsync_directory

WALK_ENTRIES_MAX: Final = 100_000
_DEPTH_MAX: Final = 64
_SKIPPED: Final = frozenset({".git"})
_COMPANIONS: Final = ("", "-wal", "-shm", "-journal", ".lock")
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ConfinedFolder:
    """One folder, held open as the thing that it was when this was made.

    `forbidden` are databases: neither they nor their companions are opened, under whatever name.
    """

    def __init__(self, root: Path, *, forbidden: Sequence[Path] = ()) -> None:
        self.root = root.resolve(strict=True)
        self._forbidden = tuple(forbidden)
        self._descriptor = os.open(self.root, _FOLDER_FLAGS)

    def close(self) -> None:
        os.close(self._descriptor)

    def read(self, path: str, bytes_max: int) -> bytes:
        """At most `bytes_max` bytes from the beginning of a regular file."""
        with self._parent(path) as (folder, name):
            self._check_file(folder, name, path)
            descriptor = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
            )
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnsafeFile(path, "is no regular file")
            return file.read(bytes_max)

    def write(self, path: str, content: bytes, *, with_folders: bool = False) -> bool:
        """Puts a file there at once, durably; whether there was none. It keeps its mode."""
        parts = self._parts(path)
        if not parts:
            raise InvalidValue("path", "names the workspace itself")
        if with_folders:
            self._make_folders(parts[:-1])
        with self._opened(parts[:-1]) as folder:
            mode = self._check_file(folder, parts[-1], path, may_be_absent=True)
            draft = f".{secrets.token_hex(8)}.engrain-draft"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(draft, flags, 0o666, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    if mode is not None:
                        os.fchmod(descriptor, stat.S_IMODE(mode))
                    file.flush()
                    os.fsync(descriptor)
                os.rename(draft, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(draft, dir_fd=folder)
                raise
        fsync_directory(self.root.joinpath(*parts[:-1]))
        return mode is None

    def list_names(self, path: str) -> list[str]:
        """Names in a folder, sorted; a folder's ends with '/', a link's with '@'."""
        with self._opened(self._parts(path)) as folder:
            return sorted(_shown(entry) for entry in _scan(folder))

    def iter_files(self, path: str) -> Iterator[str]:
        """Every regular file below, relative to the root; no link is followed.

        Raises `LimitExceeded` after `WALK_ENTRIES_MAX` entries.
        """
        parts = self._parts(path)
        left = [WALK_ENTRIES_MAX]
        with self._opened(parts) as folder:
            yield from self._iter_below(folder, "/".join(parts), left, depth=0)

    def _iter_below(
        self, folder: int, prefix: str, left: list[int], *, depth: int
    ) -> Iterator[str]:
        if depth > _DEPTH_MAX:
            return
        for entry in sorted(_scan(folder), key=lambda one: one.name):
            left[0] -= 1
            if left[0] < 0:
                raise LimitExceeded("walk_entries_max", WALK_ENTRIES_MAX)
            name = f"{prefix}/{entry.name}" if prefix else entry.name
            if entry.is_file(follow_symlinks=False):
                yield name
            elif entry.is_dir(follow_symlinks=False) and entry.name not in _SKIPPED:
                with suppress(OSError):  # gone, exchanged or unreadable meanwhile
                    inner = os.open(entry.name, _FOLDER_FLAGS, dir_fd=folder)
                    try:
                        yield from self._iter_below(inner, name, left, depth=depth + 1)
                    finally:
                        os.close(inner)

    def _parts(self, path: str) -> list[str]:
        """The names on the way; raises `InvalidValue` for a path that leads outside."""
        if "\0" in path:
            raise InvalidValue("path", "holds a NUL")
        try:
            inside = path
            if path.startswith("/"):
                inside = str(Path(os.path.normpath(path)).relative_to(self.root))
            inside.encode()
        except ValueError:
            raise InvalidValue("path", "is outside the workspace") from None
        parts = [part for part in inside.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise InvalidValue("path", "must not contain '..'")
        return parts

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        parts = self._parts(path)
        if not parts:
            raise UnsafeFile(path, "is no regular file")
        with self._opened(parts[:-1]) as folder:
            yield folder, parts[-1]

    @contextmanager
    def _opened(self, parts: Sequence[str]) -> Iterator[int]:
        """The folder that the names lead to, each opened below the one before."""
        folder = os.dup(self._descriptor)
        try:
            for part in parts:
                inner = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    def _make_folders(self, parts: Sequence[str]) -> None:
        for count in range(1, len(parts) + 1):
            with self._opened(parts[: count - 1]) as folder, suppress(FileExistsError):
                os.mkdir(parts[count - 1], dir_fd=folder)

    def _check_file(
        self, folder: int, name: str, path: str, *, may_be_absent: bool = False
    ) -> int | None:
        """Its mode, or None when it is absent; raises before anything unfit is opened."""
        try:
            seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            if not may_be_absent:
                raise
            seen = None
        if seen is not None and not stat.S_ISREG(seen.st_mode):
            raise UnsafeFile(path, "is no regular file")
        if seen is not None and (seen.st_dev, seen.st_ino) in self._identities():
            raise UnsafeFile(path, "belongs to the memory's database")
        if self._is_forbidden_place(folder, name):
            raise UnsafeFile(path, "belongs to the memory's database")
        return None if seen is None else seen.st_mode

    def _identities(self) -> set[tuple[int, int]]:
        """The databases' files as they are now, whatever they are called here."""
        found = set()
        for database in self._forbidden:
            for end in _COMPANIONS:
                with suppress(OSError):
                    seen = Path(f"{database}{end}").stat()
                    found.add((seen.st_dev, seen.st_ino))
        return found

    def _is_forbidden_place(self, folder: int, name: str) -> bool:
        """True where a database or a companion would be, there or not."""
        here = os.fstat(folder)
        for database in self._forbidden:
            if name not in {f"{database.name}{end}" for end in _COMPANIONS}:
                continue
            with suppress(OSError):
                around = database.parent.stat()
                if (around.st_dev, around.st_ino) == (here.st_dev, here.st_ino):
                    return True
        return False


def _scan(folder: int) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        yield from entries


def _shown(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return f"{entry.name}@"
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
