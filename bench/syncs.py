"""Counts what SQLite asks of the file system, through a VFS that passes everything on.

Counting costs time, so what is counted is never timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw

_NAME = "engrain-bench-counting"


class _CountingFile(apsw.VFSFile):
    def __init__(self, base: str, name: Any, flags: Any, counts: Counter[str]) -> None:
        super().__init__(base, name, flags)
        self._counts = counts
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._bytes = "log bytes" if path.endswith("-wal") else "other bytes"

    def xSync(self, flags: int) -> None:
        self._counts["syncs"] += 1
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._counts[self._bytes] += len(data)
        super().xWrite(data, offset)


class _CountingVfs(apsw.VFS):
    def __init__(self, base: str, counts: Counter[str]) -> None:
        self._base = base
        self._counts = counts
        super().__init__(_NAME, base=base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _CountingFile(self._base, name, flags, self._counts)


@contextmanager
def counted() -> Iterator[Callable[[], Counter[str]]]:
    """What connections opened inside have done since they were asked for it last."""
    counts: Counter[str] = Counter()

    def since() -> Counter[str]:
        found = Counter(counts)
        counts.clear()
        return found

    usual = apsw.vfs_names()[0]
    vfs = _CountingVfs(usual, counts)
    try:
        yield since
    finally:
        vfs.unregister()
