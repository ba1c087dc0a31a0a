"""A disk that fails while COMMIT runs: nobody is told that it is done, and a repeat counts once."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from engrain.contracts.errors import Uncertain
from engrain.contracts.events import UserMessage
from engrain.contracts.ids import OperationId
from engrain.contracts.leases import SessionLease
from engrain.testing.contracts import ANA, begin, hold, say
from engrain.testing.engines import SqliteFileEngine, Stores, open_stores

THREADS = 8


class FailingDisk(apsw.VFS):
    """The system's files, the default of all; `trouble` is called where the log is written."""

    def __init__(self) -> None:
        self.trouble: Callable[[str], None] | None = None
        super().__init__(f"failing-{id(self)}", "", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> FailingFile:
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    def __init__(self, disk: FailingDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._is_log = path.endswith("-wal")
        super().__init__("unix", name, flags)

    def _meet(self, what: str) -> None:
        if self._is_log and self._disk.trouble:
            self._disk.trouble(what)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._meet("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._meet("sync")
        super().xSync(flags)


@pytest.fixture
def disk() -> Iterator[FailingDisk]:
    failing = FailingDisk()
    try:
        yield failing
    finally:
        failing.unregister()


@pytest.fixture
def engine(tmp_path: Path) -> SqliteFileEngine:
    return SqliteFileEngine(tmp_path / "engrain.sqlite3")


def full_after(writes: int) -> Callable[[str], None]:
    """The disk has room for so many more writes to the log."""
    left = writes

    def trouble(what: str) -> None:
        nonlocal left
        left -= what == "write"
        if left < 0:
            raise apsw.FullError(os.strerror(errno.ENOSPC))

    return trouble


def unsynced(what: str) -> None:
    """What was written is there, and whether it stays there nobody knows."""
    if what == "sync":
        raise apsw.IOError(os.strerror(errno.EIO))


def texts(stores: Stores, lease: SessionLease) -> list[str]:
    events = stores.transcript.iter_events(ANA, lease.session_id)
    return [stored.event.text for stored in events]


@pytest.mark.invariant("INV-07")
@pytest.mark.invariant("INV-13")
@pytest.mark.parametrize(
    "trouble", [full_after(0), full_after(3), unsynced], ids=["full", "full-within", "unsynced"]
)
def test_commit_that_the_disk_fails_is_uncertain_and_repeated_once(
    disk: FailingDisk, engine: SqliteFileEngine, trouble: Callable[[str], None]
) -> None:
    with open_stores(engine) as stores, ThreadPoolExecutor(THREADS) as threads:
        leases = [hold(stores, begin(stores)) for _ in range(THREADS)]
        disk.trouble = trouble
        told = [threads.submit(say, stores, lease, "kept?") for lease in leases]
        lost = [future.exception() for future in told]
        disk.trouble = None
        for lease, error in zip(leases, lost, strict=True):
            assert isinstance(error, Uncertain)
            assert error.operation_id is not None
            turn, again = [UserMessage(text="kept?")], OperationId(error.operation_id)
            assert stores.transcript.append_turn(lease, turn, operation_id=again).last_sequence == 1
            assert say(stores, lease, "goes on").last_sequence == 2
    with open_stores(engine) as stores:
        for lease in leases:
            assert texts(stores, lease) == ["kept?", "goes on"]
            assert stores.transcript.verify(ANA, lease.session_id).event_count == 2
