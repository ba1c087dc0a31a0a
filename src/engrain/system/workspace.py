"""Which directory a path leads to: its device, its inode number and its generation (INV-09).

The identity is what is compared, the path is only where it was last seen. Inside an append the
bound path must still lead to the bound directory, and anything else fails closed. A directory that
was renamed keeps its identity: who opens the session with its new path finds the same workspace,
and the store remembers the new path from then on. One that was copied or restored is another
directory until an operator relinks it.
"""

from __future__ import annotations

import os
from pathlib import Path

from engrain.contracts.errors import InvalidValue, UnsupportedSystem, WorkspaceMismatch
from engrain.contracts.workspace import DirectoryIdentity, Workspace, Workspaces
from engrain.system.file_systems import find_file_system
from engrain.system.generations import SOURCES

_OPEN_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WAY_OUT = "if it was moved, open the session with its new path; if it was copied or restored, "
_WAY_OUT += "an operator can relink it: engrain workspace relink"


class SystemWorkspaces(Workspaces):
    """Identities of this machine's directories."""

    def read(self, path: str) -> Workspace:
        """The workspace at `path`, under its canonical path: absolute, links resolved.

        Raises `WorkspaceMismatch` when there is no directory that can be read, `InvalidValue` when
        its path cannot be stored as text, and `UnsupportedSystem` when the file system tells
        directories apart by inode number alone.
        """
        place = _canonical(path)
        try:
            descriptor = os.open(place, _OPEN_FLAGS | os.O_NOFOLLOW)
        except OSError as error:
            raise _no_directory(place, error) from error
        try:
            return Workspace(name=place, identity=_identify(descriptor, place))
        finally:
            os.close(descriptor)

    def validate(self, bound: Workspace) -> None:
        """Raises `WorkspaceMismatch` unless the bound path leads to the bound directory.

        A named workspace has nothing to check. Costs about ten microseconds: appends call it.
        """
        identity = bound.identity
        if identity is None:
            return
        try:
            descriptor = os.open(bound.name, _OPEN_FLAGS)
        except OSError as error:
            raise _no_directory(bound.name, error) from error
        try:
            if not _is_same(descriptor, identity):
                raise WorkspaceMismatch(f"{bound.name}: is another directory now; {_WAY_OUT}")
        finally:
            os.close(descriptor)


def _canonical(path: str) -> str:
    if not path:
        raise InvalidValue("workspace", "must not be empty")
    try:
        return os.path.realpath(path, strict=True)
    except ValueError:
        raise InvalidValue("workspace", "holds NUL or a lone surrogate") from None
    except OSError as error:
        raise _no_directory(path, error) from error


def _identify(descriptor: int, place: str) -> DirectoryIdentity:
    found = os.fstat(descriptor)
    for kind, read in SOURCES.items():
        if kind == "handle" and not _has_lasting_handles(place):
            continue
        generation = read(descriptor)
        if generation is not None:
            return DirectoryIdentity(
                device=found.st_dev,
                inode=found.st_ino,
                generation=generation,
                generation_kind=kind,
            )
    raise UnsupportedSystem(
        f"{place}: its file system cannot tell a directory from the next one with its number; "
        "give the workspace a name instead of a path"
    )


def _has_lasting_handles(place: str) -> bool:
    """FUSE and FAT make handles up while a file is in the cache, and others later."""
    name = find_file_system(Path(place)) or ""
    return not name.startswith(("fuse", "virtiofs", "vfat", "msdos"))


def _is_same(descriptor: int, identity: DirectoryIdentity) -> bool:
    found = os.fstat(descriptor)
    if (found.st_dev, found.st_ino) != (identity.device, identity.inode):
        return False
    read = SOURCES.get(identity.generation_kind)
    return read is not None and read(descriptor) == identity.generation


def _no_directory(place: str, error: OSError) -> WorkspaceMismatch:
    return WorkspaceMismatch(f"{place}: {error.strerror or 'cannot be read'}; {_WAY_OUT}")
