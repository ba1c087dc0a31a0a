"""What one run of the benchmark has: its size, its directory and the peers' process."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from peers.client import Peers


@dataclass(frozen=True)
class Run:
    """`share` scales every count: 1 is what is reported, less is for trying."""

    work: Path
    peers: Peers
    share: float = 1.0
    is_full: bool = False

    @property
    def directory(self) -> Path:
        """Where sections put their files; removed at the end of the run."""
        return self.work / "speed"

    @property
    def cache(self) -> Path:
        """What is slow to build and kept for the next run."""
        return self.work / "cache"

    def rounds(self, usual: int) -> int:
        return max(2, round(usual * self.share))

    def fresh(self, name: str) -> Path:
        """An empty private directory."""
        path = self.directory / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True, mode=0o700)
        return path
