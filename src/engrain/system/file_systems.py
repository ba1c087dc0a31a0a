"""Tells network file systems, on which SQLite's locks cannot be trusted."""

from __future__ import annotations

from pathlib import Path


def refuse_network_file_system(path: Path) -> None:
    """Raises `UnsupportedSystem` when `path` lies on a network file system."""
