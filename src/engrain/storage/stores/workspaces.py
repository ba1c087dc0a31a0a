"""Workspaces of a scope: found by identity, renamed when the directory moved."""

from __future__ import annotations

from engrain.contracts.ids import ScopeKey
from engrain.contracts.workspace import Workspace
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


def read_bound_workspace(reader: Reader, scope: ScopeKey, workspace_key: int) -> Workspace:
    """The workspace that a session row names."""
    row = reader.one("workspaces.read", scope_key=scope.scope, workspace_key=workspace_key)
    assert row is not None, "a session's workspace row is kept by its foreign key"
    return read_workspace(row[0], row[1])
