"""Which file system a path lies on, and whether SQLite's locks can be trusted there.

Linux lists its mounts in /proc/self/mountinfo; where there is no such list nothing is refused, and
the locks themselves are the only check.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Final

import msgspec

from engrain.contracts.errors import UnsupportedSystem

MOUNTINFO: Final = Path("/proc/self/mountinfo")
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")

SHARED_FILE_SYSTEMS: Final = frozenset(
    {
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2",
        "glusterfs", "gpfs", "kafs", "lustre", "ncp", "ncpfs", "nfs", "nfs4", "ocfs2",
        "orangefs", "panfs", "prl_fs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "vmhgfs",
        "wekafs",
    }
)  # fmt: skip
"""Shared by machines: a lock or a mapped page of one machine, another may not see."""

SHARED_BY_FUSE: Final = frozenset(
    {
        "blobfuse", "blobfuse2", "ceph", "ceph-fuse", "curlftpfs", "davfs", "davfs2", "gcsfuse",
        "glusterfs", "goofys", "gvfsd-fuse", "juicefs", "lustre", "mfs", "moosefs",
        "mount.davfs", "mountpoint-s3", "rclone", "s3fs", "s3ql", "seaweedfs", "smbnetfs", "sshfs",
        "vmhgfs-fuse",
    }
)  # fmt: skip
"""Of `fuse.<name>`, those whose files are on another machine."""


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """One line of mountinfo, as far as it is needed here."""

    device: str
    """`major:minor`, which is `st_dev` of the files on it for most file systems."""

    point: str
    file_system: str


def refuse_network_file_system(path: Path, *, mountinfo: Path = MOUNTINFO) -> None:
    """Raises `UnsupportedSystem` when `path` lies on a file system that machines share.

    SQLite's locks and its log in shared memory need one machine: https://sqlite.org/wal.html.
    """
    name = find_file_system(path, mountinfo=mountinfo)
    if name is not None and is_shared(name):
        raise UnsupportedSystem(
            f"{path}: lies on {name}, a file system shared between machines, where SQLite loses "
            "data; keep the database on a local disk (--home, ENGRAIN_HOME), or use PostgreSQL "
            "(--db postgresql://…)",
            path=str(path),
            file_system=name,
        )


def is_shared(name: str) -> bool:
    """True for a type of file system, as mountinfo names it, that machines share."""
    kind, _, program = name.lower().partition(".")
    if kind == "fuse":
        return program in SHARED_BY_FUSE
    return kind in SHARED_FILE_SYSTEMS


def find_file_system(path: Path, *, mountinfo: Path = MOUNTINFO) -> str | None:
    """The type of the file system that `path` lies on; None when the system does not tell.

    `path` must exist; links are followed.
    """
    try:
        lines = mountinfo.read_text("utf-8", "surrogateescape").split("\n")
        real, found = path.resolve(), path.stat().st_dev
    except OSError:
        return None
    mount = find_mount(list_mounts(lines), real, f"{os.major(found)}:{os.minor(found)}")
    return None if mount is None else mount.file_system


def find_mount(mounts: Iterable[Mount], path: PurePath, device: str) -> Mount | None:
    """The mount that `path` lies on: of those above it the deepest, of those there the last.

    One that another was mounted over is told by its device, unless that tells nothing: btrfs and
    overlays give their files numbers that no mount has.
    """
    above = [mount for mount in mounts if path.is_relative_to(mount.point)]
    if not above:
        return None
    same = [mount for mount in above if mount.device == device]
    deepest = max(len(PurePath(mount.point).parts) for mount in same or above)
    return [m for m in same or above if len(PurePath(m.point).parts) == deepest][-1]


def list_mounts(lines: Iterable[str]) -> list[Mount]:
    """The mounts that mountinfo lists, in its order; lines of another shape are left out.

    proc_pid_mountinfo(5): fields before ` - ` vary in number, the type comes right after it.
    """
    return list(_iter_mounts(lines))


def _iter_mounts(lines: Iterable[str]) -> Iterator[Mount]:
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) >= 5 and kinds[0]:
            yield Mount(
                device=fields[2], point=_unescape(fields[4]), file_system=_unescape(kinds[0])
            )


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
