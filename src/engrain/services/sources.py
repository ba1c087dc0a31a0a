"""What an import path holds: one file, the files of a folder, or the members of a zip.

A member's name is a label and never a path: nothing is unpacked. What cannot be listed or opened
becomes a source whose `open` raises, so that it costs its neighbours nothing.
"""

from __future__ import annotations

import errno
import io
import lzma
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Final, NoReturn

from engrain.contracts import limits
from engrain.contracts.errors import LimitExceeded, NotFound, UnsafeFile
from engrain.contracts.imports import UNREADABLE_FOLDER, Skipped, SourceFile
from engrain.contracts.text import repair_text

_BROKEN_ZIP: Final = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,  # encrypted, or compressed in a way that this Python does not know
    ValueError,  # a name that is no text
)
_BUFFER_BYTES: Final = 64 * limits.KIB


class Sources:
    """The files behind a path, to be used in a `with` block: it keeps at most one zip open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._zip: tuple[Path, zipfile.ZipFile] | None = None

    def __enter__(self) -> Sources:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def __iter__(self) -> Iterator[SourceFile | Skipped]:
        """Sources in a stable order; links and what is no file are counted, never followed.

        A folder inside that cannot be listed is `unreadable_folder`. Raises `NotFound` when nothing
        is at the path, `UnsafeFile` for what cannot be looked at and for a pipe or a device.
        """
        mode = _mode_of(self._path)
        if stat.S_ISDIR(mode):
            yield from self._folder()
        elif stat.S_ISREG(mode):
            self._check_readable()
            yield from self._file(self._path, _label(self._path.name))
        else:
            raise UnsafeFile(_label(str(self._path)), "is neither a file nor a folder")

    def _check_readable(self) -> None:
        """Raises `UnsafeFile` with the reason; where other files wait, it is counted instead."""
        try:
            if _is_zip(self._path):
                self._opened(self._path)
            else:
                self._path.open("rb").close()
        except (OSError, *_BROKEN_ZIP) as error:
            whole = _unreadable(error) if isinstance(error, _BROKEN_ZIP) else error
            raise _unlooked(self._path, whole) from None

    def _folder(self) -> Iterator[SourceFile | Skipped]:
        """What is inside, each folder's things by name; as deep as the system can name it."""
        try:
            waiting = _entries(self._path)
        except OSError as error:
            raise _unlooked(self._path, error) from None
        while waiting:
            entry = waiting.pop()
            name = _label(os.path.relpath(entry.path, self._path))
            if entry.is_dir(follow_symlinks=False):
                try:
                    waiting += _entries(Path(entry.path))
                except OSError:
                    yield Skipped(name, UNREADABLE_FOLDER)
            else:
                yield from self._inside(entry, name)

    def _inside(self, entry: os.DirEntry[str], name: str) -> Iterator[SourceFile | Skipped]:
        if entry.is_file(follow_symlinks=False):
            yield from self._file(Path(entry.path), name)
        else:
            yield Skipped(name, "link" if entry.is_symlink() else "not_a_file")

    def _file(self, path: Path, name: str) -> Iterator[SourceFile]:
        if _is_zip(path):
            yield from self._members(path, name)
        else:
            yield SourceFile(name=name, size=_size_of(path), open=lambda: path.open("rb"))

    def _members(self, path: Path, name: str) -> Iterator[SourceFile]:
        try:
            members = self._opened(path).infolist()
        except (OSError, *_BROKEN_ZIP) as error:
            yield SourceFile(name=name, size=0, open=_failing(error))
            return
        for member in sorted(members, key=lambda member: member.filename):
            if not member.is_dir():
                yield self._member(path, member, f"{name}/{_label(member.filename)}")

    def _member(self, path: Path, member: zipfile.ZipInfo, name: str) -> SourceFile:
        if why := _bomb(member, _size_of(path)):
            return SourceFile(name=name, size=0, open=_failing(why))
        return SourceFile(
            name=name, size=member.file_size, open=lambda: self._open_member(path, member)
        )

    def _open_member(self, path: Path, member: zipfile.ZipInfo) -> BinaryIO:
        try:
            stream = self._opened(path).open(member)
        except _BROKEN_ZIP as error:
            raise _unreadable(error) from error
        return io.BufferedReader(_Member(stream), _BUFFER_BYTES)

    def _opened(self, path: Path) -> zipfile.ZipFile:
        """The zip at `path`, with its directory read once however many members it has."""
        if self._zip is None or self._zip[0] != path:
            self._close()
            self._zip = path, zipfile.ZipFile(path)
        return self._zip[1]

    def _close(self) -> None:
        if self._zip is not None:
            self._zip[1].close()
            self._zip = None


class _Member(io.RawIOBase):
    """A member's bytes; whatever is broken about them is an `OSError`."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._stream.read(len(buffer))
        except _BROKEN_ZIP as error:
            raise _unreadable(error) from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip"


def _label(name: str) -> str:
    """The name as text that can be shown and stored, whatever bytes it is made of."""
    return repair_text(name)[0]


def _mode_of(path: Path) -> int:
    """What is at the path; a working directory that was removed is there no more."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise _not_found(path) from None
    except (OSError, ValueError) as error:
        raise _unlooked(path, error) from None
    if not found.st_nlink:
        raise _not_found(path)
    return found.st_mode


def _not_found(path: Path) -> NotFound:
    return NotFound("file or folder", _label(str(path)), where="")


def _unlooked(path: Path, error: OSError | ValueError) -> UnsafeFile:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else "is no path"
    return UnsafeFile(_label(str(path)), reason)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, the first by name last."""
    with os.scandir(folder) as found:
        return sorted(found, key=lambda entry: entry.name, reverse=True)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # opening it says what is wrong
        return 0


def _bomb(member: zipfile.ZipInfo, zip_bytes: int) -> LimitExceeded | None:
    """Why the member is not worth unpacking: no conversation shrinks to a two-hundredth."""
    ratio = member.file_size // max(min(member.compress_size, zip_bytes), 1)
    if member.file_size <= limits.import_zip_free_bytes or ratio <= limits.import_zip_ratio_max:
        return None
    return LimitExceeded("import_zip_ratio_max", limits.import_zip_ratio_max, ratio)


def _failing(error: Exception) -> Callable[[], BinaryIO]:
    def fail() -> NoReturn:
        raise _unreadable(error) if isinstance(error, _BROKEN_ZIP) else error

    return fail


def _unreadable(error: Exception) -> OSError:
    return OSError(errno.EIO, f"the zip is broken ({type(error).__name__})")
