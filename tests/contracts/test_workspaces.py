"""The suite of workspaces on the three engines."""

from engrain.testing.contracts.workspaces import TestBinding, TestIdentity, TestRelinking, project

__all__ = ["TestBinding", "TestIdentity", "TestRelinking", "project"]
