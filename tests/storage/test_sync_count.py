"""One sync a durable turn, counted where SQLite asks the system for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from engrain.contracts.events import AssistantMessage, ToolCall, ToolResult, UserMessage
from engrain.contracts.leases import SessionLease
from engrain.testing.contracts import ANA, begin, hold
from engrain.testing.engines import SqliteFileEngine, Stores, open_stores
from engrain.testing.faults import Faults

TURNS = 200
PER_TURN_MAX = 1.05
KIB = "x" * 1_000


class CountingFiles(apsw.VFS):
    """The system's files, each sync counted by the end of the file's name; the default of all."""

    def __init__(self) -> None:
        self.syncs: Counter[str] = Counter()
        self.opened: list[str] = []
        super().__init__(f"counting-{id(self)}", "", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> CountingFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self.opened.append(path)
        return CountingFile(self.syncs, Path(path).name, name, flags)


class CountingFile(apsw.VFSFile):
    def __init__(self, syncs: Counter[str], label: str, name: Any, flags: list[int]) -> None:
        self._syncs = syncs
        self._label = label
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:
        self._syncs[self._label] += 1
        super().xSync(flags)


@pytest.fixture
def files() -> Iterator[CountingFiles]:
    counting = CountingFiles()
    try:
        yield counting
    finally:
        counting.unregister()


@pytest.fixture
def stores(files: CountingFiles, tmp_path: Path) -> Iterator[Stores]:
    with open_stores(SqliteFileEngine(tmp_path / "engrain.sqlite3")) as opened:
        yield opened


def turn(number: int) -> list[UserMessage | ToolCall | ToolResult | AssistantMessage]:
    """Four events of a kilobyte."""
    call_id = f"c{number}"
    return [
        UserMessage(text=KIB),
        ToolCall(call_id=call_id, name="look", arguments="{}", text=KIB),
        ToolResult(call_id=call_id, text=KIB),
        AssistantMessage(text=KIB),
    ]


@pytest.mark.invariant("INV-28")
def test_durable_turn_costs_one_sync(stores: Stores, files: CountingFiles) -> None:
    lease = hold(stores, begin(stores))
    before = files.syncs.total()
    for number in range(TURNS):
        stores.transcript.append_turn(lease, turn(number))
    syncs = files.syncs.total() - before
    assert TURNS <= syncs <= PER_TURN_MAX * TURNS


@pytest.mark.invariant("INV-28")
def test_every_turn_is_synced_before_it_is_acknowledged(
    stores: Stores, files: CountingFiles
) -> None:
    lease = hold(stores, begin(stores))
    for number in range(20):
        before = files.syncs["engrain.sqlite3-wal"]
        stores.transcript.append_turn(lease, turn(number))
        assert files.syncs["engrain.sqlite3-wal"] > before


@pytest.mark.invariant("INV-28")
def test_turns_that_share_a_commit_share_its_sync(stores: Stores, files: CountingFiles) -> None:
    leases = [hold(stores, begin(stores)) for _ in range(16)]

    def write(lease: SessionLease) -> None:
        for number in range(10):
            stores.transcript.append_turn(lease, turn(number))

    before = files.syncs.total()
    with ThreadPoolExecutor(16) as threads, Faults() as faults:
        list(threads.map(write, leases))
    commits = faults.reached.count("commit.after")
    assert commits < 160
    assert commits <= files.syncs.total() - before <= PER_TURN_MAX * commits + 3


def test_reading_syncs_nothing(stores: Stores, files: CountingFiles) -> None:
    session = begin(stores)
    lease = hold(stores, session)
    stores.transcript.append_turn(lease, turn(1))
    before = files.syncs.total()
    assert len(list(stores.transcript.replay(lease))) == 4
    assert stores.transcript.verify(ANA, session.id).event_count == 4
    assert len(stores.sessions.list(ANA).items) == 1
    assert files.syncs.total() == before
    assert any(path.endswith("-wal") for path in files.opened)
