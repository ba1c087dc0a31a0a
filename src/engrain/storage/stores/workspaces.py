"""Workspaces of a scope: found by identity, renamed when the directory moved."""

from __future__ import annotations

from uuid import UUID

from engrain.contracts.errors import WorkspaceMismatch
from engrain.contracts.ids import ScopeKey
from engrain.contracts.workspace import Workspace, require_directory
from engrain.rules.lease import HeldLease, check_unheld
from engrain.storage.database import Reader, Writer
from engrain.storage.rows import read_workspace, workspace_identity


def find_workspace(reader: Reader, scope: ScopeKey, workspace: Workspace) -> int | None:
    """The key of the workspace, None when nothing is bound to it yet."""
    row = reader.one(
        "workspaces.find", scope_key=scope.scope, identity=workspace_identity(workspace)
    )
    return None if row is None else int(row[0])


def ensure_workspace(writer: Writer, scope: ScopeKey, workspace: Workspace) -> int:
    """The key of the workspace; a directory that was renamed is known by its new path from now."""
    identity = workspace_identity(workspace)
    row = writer.one("workspaces.find", scope_key=scope.scope, identity=identity)
    if row is None:
        row = writer.one(
            "workspaces.add",
            scope_key=scope.scope,
            identity=identity,
            name=workspace.name,
            created_at=writer.now_us,
        )
        assert row is not None
        return int(row[0])
    if row[1] != workspace.name:
        writer.run(
            "workspaces.rename",
            scope_key=scope.scope,
            workspace_key=row[0],
            name=workspace.name,
        )
    return int(row[0])


def confirm_workspace(
    writer: Writer, scope: ScopeKey, workspace_key: int, claimed: Workspace | None
) -> Workspace:
    """The workspace that a session row names, by its new path when `claimed` shows a rename.

    Raises `WorkspaceMismatch` when `claimed` is another one.
    """
    where = {"scope_key": scope.scope, "workspace_key": workspace_key}
    bound = _read(writer, where)
    if claimed is None or claimed == bound:
        return bound
    if workspace_identity(claimed) != workspace_identity(bound):
        raise WorkspaceMismatch("the session is bound to another workspace")
    writer.run("workspaces.rename", name=claimed.name, **where)
    return claimed


def move_workspace(
    writer: Writer, scope: ScopeKey, workspace_key: int, workspace: Workspace
) -> int:
    """Binds every session of one directory to another; how many. The writer holds the scope.

    Raises `InvalidValue` when either is a named workspace, `SessionBusy` while one of them has a
    writer, which stands on the old directory.
    """
    where = {"scope_key": scope.scope, "workspace_key": workspace_key}
    require_directory(workspace)
    require_directory(_read(writer, where))
    rows = writer.all("workspaces.lock_sessions", **where)
    for session_id, *held in rows:
        check_unheld(HeldLease(*held), UUID(bytes=session_id), writer.now_us)
    target = ensure_workspace(writer, scope, workspace)
    writer.run("workspaces.move_sessions", to_workspace_key=target, **where)
    return len(rows)


def _read(reader: Reader, where: dict[str, int]) -> Workspace:
    row = reader.one("workspaces.read", **where)
    assert row is not None, "a session's workspace row is kept by its foreign key"
    return read_workspace(row[0], row[1])
