"""What tells a directory from a later one that was given the same inode number.

Three sources, best first. Each is a kind of its own: what one gave is only ever compared with what
the same one gives later, and a source that falls silent is a reason to refuse.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Final

Source = Callable[[int], int | None]
"""The generation of an open directory, or None where the system tells none."""

_AT_EMPTY_PATH: Final = 0x1000
_HANDLE_BYTES_MAX: Final = 128
_HANDLE_HEAD: Final = struct.Struct("Ii")
_FS_IOC_GETVERSION: Final = 0x80087601 if sys.maxsize > 2**32 else 0x80047601
_STATX_BTIME: Final = 0x800
_STATX_BYTES: Final = 256
_STATX_BTIME_AT: Final = 80
_NANOSECONDS: Final = 1_000_000_000


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _find_call(name: str) -> Callable[..., int] | None:
    call: Callable[..., int] | None = getattr(_libc(), name, None)
    return call


def read_handle(directory: int) -> int | None:
    """63 bits of a hash of the kernel's file handle, which holds inode number and generation.

    name_to_handle_at(2). The handle outlives a rename and a remount; nobody can choose it.
    """
    call = _find_call("name_to_handle_at")
    if call is None:
        return None
    handle = ctypes.create_string_buffer(_HANDLE_HEAD.size + _HANDLE_BYTES_MAX)
    _HANDLE_HEAD.pack_into(handle, 0, _HANDLE_BYTES_MAX, 0)
    if call(directory, b"", handle, ctypes.byref(ctypes.c_int()), _AT_EMPTY_PATH) != 0:
        return None
    size, _kind = _HANDLE_HEAD.unpack_from(handle)
    digest = hashlib.sha256(handle.raw[4 : _HANDLE_HEAD.size + size]).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def read_version(directory: int) -> int | None:
    """The inode's generation number, where the file system answers FS_IOC_GETVERSION.

    ioctl_fs(2) writes an `int` in spite of the request's `long`. A zero means none.
    """
    if sys.platform != "linux":
        return None
    answer = bytearray(8)
    try:
        fcntl.ioctl(directory, _FS_IOC_GETVERSION, answer)
    except OSError:
        return None
    return int.from_bytes(answer[:4], sys.byteorder) or None


def read_birth(directory: int) -> int | None:
    """When the directory was made, in nanoseconds: `st_birthtime`, or statx(2) on Linux.

    As fine as the clock that stamped it: some milliseconds on older kernels.
    """
    stamped = getattr(os.fstat(directory), "st_birthtime", None)
    if stamped is not None:
        return int(stamped * _NANOSECONDS) or None
    call = _find_call("statx")
    if call is None:
        return None
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if call(directory, b"", _AT_EMPTY_PATH, _STATX_BTIME, found) != 0:
        return None
    if not struct.unpack_from("I", found)[0] & _STATX_BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from("qI", found, _STATX_BTIME_AT)
    return int(seconds) * _NANOSECONDS + int(nanoseconds) or None


SOURCES: Final[Mapping[str, Source]] = {
    "handle": read_handle,
    "version": read_version,
    "birth": read_birth,
}
"""Best first, by the name that is stored beside the generation. A name never changes meaning."""
