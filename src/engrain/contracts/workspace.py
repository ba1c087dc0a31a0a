"""What a session is bound to: a directory with its identity, or a name on a server without one."""

from __future__ import annotations

from typing import Protocol

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue
from engrain.contracts.text import require_short_text


class DirectoryIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which directory, not which path: an inode number alone is reused at once.

    `generation` is the file handle's inode generation or the birth time; `generation_kind` says
    which, so that the two are never compared with each other.
    """

    device: int
    inode: int
    generation: int
    generation_kind: str


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """A named workspace (`identity` is None) or a directory (`name` is its canonical path)."""

    name: str
    identity: DirectoryIdentity | None = None

    def __post_init__(self) -> None:
        bytes_max = 4_096 if self.identity else limits.workspace_name_bytes_max
        require_short_text(self.name, "workspace", bytes_max)

    @property
    def is_directory(self) -> bool:
        return self.identity is not None


DEFAULT_WORKSPACE = Workspace(name="default")


def named_workspace(name: str) -> Workspace:
    """A workspace without a directory; a path is refused so that the two are not confused."""
    if "/" in name:
        raise InvalidValue("workspace", "a name holds no '/'; pass a Path to bind a directory")
    return Workspace(name=name)


def require_directory(workspace: Workspace) -> Workspace:
    """`workspace` itself; raises `InvalidValue` for a named one, which has no place to move from.

    Every session that asked for no workspace is in the one named `default`.
    """
    if not workspace.is_directory:
        raise InvalidValue("workspace", "a named workspace is not relinked, only a directory is")
    return workspace


class Workspaces(Protocol):
    """Reads the identity of directories."""

    def read(self, path: str) -> Workspace:
        """The workspace at `path`; raises `WorkspaceMismatch` when there is no directory."""
        ...

    def validate(self, bound: Workspace) -> None:
        """Raises `WorkspaceMismatch` unless `bound` still names the same directory."""
        ...
