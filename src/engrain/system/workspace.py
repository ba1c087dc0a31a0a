"""Workspaces."""

from __future__ import annotations

from engrain.contracts.workspace import Workspace


class SystemWorkspaces:
    def read(self, path: str) -> Workspace:
        raise NotImplementedError

    def validate(self, bound: Workspace) -> None:
        raise NotImplementedError
