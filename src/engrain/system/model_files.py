"""The files of a model: listed, hashed, copied or taken over, and looked at from outside.

Reads whatever is below one file or folder and never leaves it: a link, a pipe or a device inside is
refused, and every name is opened relative to its open folder without following links. What is
written is private (0600 in 0700) and durable when a verb returns. Where models lie and when they
may be touched is `services/models.py`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue, LimitExceeded, StorageFull, UnsafeFile
from engrain.contracts.models import (
    FILE_NAME_BYTES_MAX,
    FILES_MAX,
    FOLDER_DEPTH_MAX,
    FileEntry,
    FileStamp,
    LinkTarget,
    Manifest,
    Progress,
)
from engrain.contracts.text import is_clean_text
from engrain.system.generations import read_birth
from engrain.system.private_files import (
    create_private_file,
    fsync_directory,
    make_private_directory,
)

_CHUNK_BYTES = 4 * limits.MIB
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_KINDS = {stat.S_IFLNK: "is a symbolic link", stat.S_IFIFO: "is a pipe"}
_NO_LINKS = "a model consists of regular files; copy it with `cp -rL` first"


class _Found(NamedTuple):
    """A regular file below the root, by its leaf in an open folder."""

    name: str
    leaf: str
    folder: int
    seen: os.stat_result


class _Reading:
    """How far one pass over all bytes has come."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done = 0
        self._total = total
        self._progress = progress
        self.buffer = memoryview(bytearray(_CHUNK_BYTES))

    def advance(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)


def hash_files(root: Path, progress: Progress | None = None) -> Manifest:
    """What `root`, a file or a folder, consists of now; reads every byte.

    Raises `UnsafeFile` for what is no regular file and for a file that changes meanwhile.
    """
    reading = _Reading(measure(root), progress)
    with _refusing(root):
        return _manifest_of(_read(found, reading, None) for found in _iter_found(root))


def copy_files(root: Path, into: Path, progress: Progress | None = None) -> Manifest:
    """Copies everything of `root` into the private folder `into`; durable when it returns."""
    reading = _Reading(_measure_for(root, into), progress)
    with _refusing(root):
        manifest = _manifest_of(
            _copy(found, _place_for(into, found.name), reading) for found in _iter_found(root)
        )
        _fsync_folders(into)
    return manifest


def take_files(
    root: Path, into: Path, progress: Progress | None = None
) -> tuple[Manifest, tuple[FileStamp, ...]]:
    """`copy_files` for a move: gives second names to files that allow it, and copies the others.

    Nothing is taken away yet: `remove_taken` does that, and wants the stamps that come back.
    """
    reading = _Reading(measure(root), progress)
    entries, taken = [], []
    with _refusing(root):
        for found in _iter_found(root):
            obtain = _take if _may_be_linked(found, into) else _copy
            entries.append(obtain(found, _place_for(into, found.name), reading))
            taken.append(_stamp(found.name, found.seen))
        _fsync_folders(into)
    return _manifest_of(iter(entries)), tuple(taken)


def remove_taken(root: Path, taken: tuple[FileStamp, ...]) -> None:
    """Removes the files that were taken, and folders that this empties; what is new there stays."""
    known = {stamp.name: (stamp.device, stamp.inode, stamp.size, stamp.mtime_ns) for stamp in taken}
    with _refusing(root):
        for found in _iter_found(root):
            seen = found.seen
            now = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)
            if known.get(found.name) == now:
                os.unlink(found.leaf, dir_fd=found.folder)
        if root.is_dir():
            for folder, _, _ in os.walk(root, topdown=False):
                with suppress(OSError):  # not empty
                    Path(folder).rmdir()
        fsync_directory(root.parent)


def stamp_files(root: Path) -> tuple[FileStamp, ...]:
    """How every file looks from outside, sorted by name; reads no content."""
    stamps = [_stamp(found.name, found.seen) for found in _iter_found(root)]
    return tuple(sorted(stamps, key=lambda stamp: stamp.name))


def locate_link(path: Path) -> LinkTarget:
    """Where `path` leads now. Raises `UnsafeFile` when there is nothing."""
    given = path.absolute()
    with _refusing(given):
        target = given.resolve(strict=True)
        seen, birth_ns = _identify(target)
    return LinkTarget(
        path=_text(given),
        target=_text(target),
        device=seen.st_dev,
        inode=seen.st_ino,
        birth_ns=birth_ns,
    )


def find_link_fault(link: LinkTarget) -> str | None:
    """Why the path no longer leads to the thing that was linked, or None when it does."""
    try:
        if str(Path(link.path).resolve(strict=True)) != link.target:
            return f"{link.path} leads elsewhere now"
        seen, birth_ns = _identify(Path(link.target))
    except (OSError, RuntimeError) as error:
        return f"{link.path} cannot be reached ({getattr(error, 'strerror', None) or 'a ring'})"
    if (seen.st_dev, seen.st_ino, birth_ns) != (link.device, link.inode, link.birth_ns):
        return f"{link.path} is another file or folder now"
    return None


def resolve_source(path: Path) -> Path:
    """The file or folder that `path` leads to, links resolved: the caller named it.

    Raises `InvalidValue` for a path that cannot be one, `UnsafeFile` when nothing is there.
    """
    if "\0" in str(path) or not str(path):
        raise InvalidValue("path", "must be the path of a file or a folder")
    with _refusing(path):
        found = path.resolve(strict=True)
    if found == found.parent:
        raise InvalidValue("path", "is the root of the system")
    return found


def measure(root: Path) -> int:
    """The bytes below `root`. Raises `LimitExceeded` or `UnsafeFile` before anything is read."""
    count = size = 0
    for found in _iter_found(root):
        count, size = count + 1, size + found.seen.st_size
        if count > FILES_MAX:
            raise LimitExceeded("model_files_max", FILES_MAX)
    if not count:
        raise InvalidValue("path", "holds no file")
    return size


def _measure_for(root: Path, into: Path) -> int:
    """`measure`, where there is room for a copy."""
    size = measure(root)
    room = os.statvfs(into)
    if room.f_bavail * room.f_frsize < size:
        raise StorageFull(f"{into}: a copy needs {size:,} bytes, the disk has not that many")
    return size


def _iter_found(root: Path) -> Iterator[_Found]:
    with _refusing(root), _opened_folder(root.parent) as parent:
        seen = os.stat(root.name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISREG(seen.st_mode):
            yield _Found(_checked(root.name, root), root.name, parent, seen)
        elif stat.S_ISDIR(seen.st_mode):
            with _opened_folder(root.name, parent) as folder:
                yield from _iter_below(folder, "", root)
        else:
            raise _unfit(root, seen)


def _iter_below(folder: int, prefix: str, root: Path) -> Iterator[_Found]:
    if prefix.count("/") > FOLDER_DEPTH_MAX:
        raise LimitExceeded("model_folder_depth_max", FOLDER_DEPTH_MAX)
    for leaf in sorted(os.listdir(folder)):
        name = _checked(prefix + leaf, root)
        seen = os.stat(leaf, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(seen.st_mode):
            yield _Found(name, leaf, folder, seen)
        elif stat.S_ISDIR(seen.st_mode):
            with _opened_folder(leaf, folder) as inner:
                yield from _iter_below(inner, f"{name}/", root)
        else:
            raise _unfit(root / name, seen)


@contextmanager
def _opened_folder(path: str | Path, parent: int | None = None) -> Iterator[int]:
    follow = 0 if parent is None else os.O_NOFOLLOW
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | follow
    descriptor = os.open(path, flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _checked(name: str, root: Path) -> str:
    if not is_clean_text(name) or not name.isprintable():
        raise UnsafeFile(str(root), "holds a file whose name is no printable text")
    if len(name.encode()) > FILE_NAME_BYTES_MAX:
        raise LimitExceeded("model_file_name_bytes_max", FILE_NAME_BYTES_MAX)
    return name


def _read(found: _Found, reading: _Reading, out: int | None) -> FileEntry:
    """Hashes one file, and writes it to `out`; it must be the one seen and must not change."""
    source = os.open(found.leaf, _READ, dir_fd=found.folder)
    try:
        digest = _pump(source, reading, out)
        if _look(os.fstat(source)) != _look(found.seen):
            raise UnsafeFile(found.name, "changed while it was read", "try again")
    finally:
        os.close(source)
    return FileEntry(name=found.name, size=found.seen.st_size, sha256=digest)


def _pump(source: int, reading: _Reading, out: int | None) -> str:
    hashed = hashlib.sha256()
    while count := os.readv(source, [reading.buffer]):
        chunk = reading.buffer[:count]
        hashed.update(chunk)
        while out is not None and chunk:
            chunk = chunk[os.write(out, chunk) :]
        reading.advance(count)
    return hashed.hexdigest()


def _copy(found: _Found, target: Path, reading: _Reading) -> FileEntry:
    create_private_file(target)
    out = os.open(target, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        entry = _read(found, reading, out)
        os.fsync(out)
    finally:
        os.close(out)
    return entry


def _take(found: _Found, target: Path, reading: _Reading) -> FileEntry:
    """A second name for the file, private from now on, and its hash."""
    os.link(found.leaf, target, src_dir_fd=found.folder, follow_symlinks=False)
    source = os.open(target, _READ)
    try:
        os.fchmod(source, 0o600)
        digest = _pump(source, reading, None)
        if _look(os.fstat(source))[:4] != _look(found.seen)[:4]:
            raise UnsafeFile(found.name, "changed while it was read", "try again")
        os.fsync(source)
    finally:
        os.close(source)
    return FileEntry(name=found.name, size=found.seen.st_size, sha256=digest)


def _may_be_linked(found: _Found, into: Path) -> bool:
    """True for our own file with no other name, on the same disk: nobody else can write to it."""
    seen = found.seen
    is_ours = seen.st_uid == os.geteuid() and seen.st_nlink == 1
    return is_ours and seen.st_dev == into.stat().st_dev


def _place_for(into: Path, name: str) -> Path:
    """The path of `name` below `into`, its folders made."""
    *folders, leaf = name.split("/")
    for folder in folders:
        into = into / folder
        with suppress(FileExistsError):
            make_private_directory(into)
    return into / leaf


def _fsync_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        fsync_directory(Path(folder))


def _manifest_of(entries: Iterator[FileEntry]) -> Manifest:
    return Manifest(files=tuple(sorted(entries, key=lambda entry: entry.name)))


def _look(seen: os.stat_result) -> tuple[int, ...]:
    return (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def _stamp(name: str, seen: os.stat_result) -> FileStamp:
    device, inode, size, mtime_ns, ctime_ns = _look(seen)
    return FileStamp(
        name=name, device=device, inode=inode, size=size, mtime_ns=mtime_ns, ctime_ns=ctime_ns
    )


def _identify(target: Path) -> tuple[os.stat_result, int]:
    descriptor = os.open(target, _READ)
    try:
        return os.fstat(descriptor), read_birth(descriptor) or 0
    finally:
        os.close(descriptor)


def _text(path: Path) -> str:
    if not is_clean_text(str(path)):
        raise InvalidValue("path", "is no text that can be stored")
    return str(path)


def _unfit(path: Path, seen: os.stat_result) -> UnsafeFile:
    kind = _KINDS.get(stat.S_IFMT(seen.st_mode), "is neither a file nor a folder")
    return UnsafeFile(str(path), kind, _NO_LINKS)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """What the system refuses, as a typed error that names the model's place."""
    try:
        yield
    except RuntimeError:
        raise UnsafeFile(str(path), "the way there is a ring of links") from None
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(f"{path}: the disk is full; nothing of the model was kept") from error
        raise UnsafeFile(str(path), error.strerror or "cannot be read") from error
