"""Group commit of the SQLite engine: threads share a transaction, and each is told the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest

from engrain.contracts import limits
from engrain.contracts.errors import Busy, StaleLease, StorageFull, Uncertain
from engrain.contracts.events import UserMessage
from engrain.contracts.ids import OperationId
from engrain.contracts.leases import SessionLease
from engrain.contracts.transcript import AppendReceipt
from engrain.storage.database import Writer
from engrain.storage.sqlite import database as sqlite_database
from engrain.storage.sqlite.database import SqliteDatabase
from engrain.testing.contracts import ANA, begin, hold, say
from engrain.testing.engines import SqliteFileEngine, Stores, open_stores
from engrain.testing.faults import Faults

THREADS = 64
WAIT_S = 60.0
_POLL_S = 0.002


@pytest.fixture
def engine(tmp_path: Path) -> SqliteFileEngine:
    return SqliteFileEngine(tmp_path / "engrain.sqlite3")


@pytest.fixture
def stores(engine: SqliteFileEngine) -> Iterator[Stores]:
    with open_stores(engine) as opened:
        yield opened


class Crowd:
    """Writers that stand in line behind one whose commit is held, so that they share the next."""

    def __init__(
        self, stores: Stores, lease: SessionLease, threads: ThreadPoolExecutor, faults: Faults
    ) -> None:
        self.faults = faults
        self._stores = stores
        self._threads = threads
        self._joined = 0
        self._held = faults.pause("commit.before")
        self._first = threads.submit(say, stores, lease, "the first of the line")
        self._held.wait()

    def join(self, verb: Callable[..., Any], *arguments: object, **named: object) -> Future[Any]:
        """Starts a write; returns once it stands in line."""
        future = self._threads.submit(verb, *arguments, **named)
        self._joined += 1
        until(lambda: len(line_of(self._stores)) == self._joined)
        return future

    def go(self) -> None:
        """Lets the first commit, and the others after it."""
        self._held.resume()
        assert self._first.result(WAIT_S).first_sequence == 1

    @property
    def commits(self) -> int:
        """How many times COMMIT was about to be run."""
        return Counter(self.faults.reached)["commit.before"]


@contextmanager
def crowded(stores: Stores) -> Iterator[Crowd]:
    lease = hold(stores, begin(stores))
    with ThreadPoolExecutor(THREADS) as threads, Faults() as faults:
        yield Crowd(stores, lease, threads, faults)


def line_of(stores: Stores) -> Sized:
    return database_of(stores)._queue._waiting


def database_of(stores: Stores) -> SqliteDatabase:
    assert isinstance(stores.database, SqliteDatabase)
    return stores.database


def until(is_so: Callable[[], bool]) -> None:
    """Returns when it is so; fails when it never is."""
    patience = Event()
    for _ in range(int(WAIT_S / _POLL_S)):
        if is_so():
            return
        patience.wait(_POLL_S)
    raise AssertionError("it never came about")


def holders(stores: Stores, count: int) -> list[SessionLease]:
    return [hold(stores, begin(stores)) for _ in range(count)]


def stored_texts(stores: Stores, lease: SessionLease) -> list[str]:
    events = stores.transcript.iter_events(ANA, lease.session_id)
    return [stored.event.text for stored in events]


# Acknowledgement


@pytest.mark.invariant("INV-07")
def test_turn_of_each_of_64_threads_is_committed_when_it_is_acknowledged(
    stores: Stores, engine: SqliteFileEngine
) -> None:
    def write(lease: SessionLease) -> None:
        for number in range(1, 6):
            receipt = say(stores, lease, "said", reply="heard")
            assert receipt.last_sequence == 2 * number
            found = engine.alter(
                "SELECT last_sequence FROM batches WHERE operation_id = :id",
                id=receipt.operation_id.bytes,
            )
            assert found == [(2 * number,)]

    leases = holders(stores, THREADS)
    with ThreadPoolExecutor(THREADS) as threads, Faults() as faults:
        list(threads.map(write, leases, timeout=WAIT_S))
    assert faults.reached.count("commit.after") < 5 * THREADS
    for lease in leases:
        assert stores.transcript.verify(ANA, lease.session_id).event_count == 10


@pytest.mark.invariant("INV-28")
def test_writers_that_wait_together_share_one_commit(stores: Stores) -> None:
    leases = holders(stores, limits.commit_turns_max)
    with crowded(stores) as crowd:
        told = [crowd.join(say, stores, lease, "together") for lease in leases]
        crowd.go()
        assert [future.result(WAIT_S).first_sequence for future in told] == [1] * len(leases)
        assert crowd.commits == 2


def test_only_the_leader_waits_for_a_checkpoint(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = holders(stores, 8)
    go_on, checkpoint = Event(), SqliteDatabase._checkpoint

    def slow_checkpoint(database: SqliteDatabase) -> None:
        assert go_on.wait(WAIT_S)
        checkpoint(database)

    with crowded(stores) as crowd:
        told = [crowd.join(say, stores, lease, "impatient") for lease in leases]
        shared = crowd.faults.pause("commit.after", nth=2)
        monkeypatch.setattr(SqliteDatabase, "_checkpoint", slow_checkpoint)
        crowd.go()
        monkeypatch.setattr(sqlite_database, "_CHECKPOINT_PAGES", 0)
        shared.resume()
        try:
            until(lambda: sum(future.done() for future in told) == len(told) - 1)
        finally:
            go_on.set()
        assert all(future.result(WAIT_S).first_sequence == 1 for future in told)


@pytest.mark.invariant("INV-07")
@pytest.mark.parametrize(("point", "are_there"), [("commit.before", 0), ("commit.after", 8)])
def test_nobody_is_told_before_commit_returned(
    stores: Stores, engine: SqliteFileEngine, point: str, are_there: int
) -> None:
    leases = holders(stores, 8)
    with crowded(stores) as crowd:
        told = [crowd.join(say, stores, lease, "patient") for lease in leases]
        shared = crowd.faults.pause(point, nth=2)
        crowd.go()
        shared.wait()
        assert not any(future.done() for future in told)
        committed = engine.alter("SELECT count(*) FROM batches")[0][0]
        assert committed - 1 == are_there
        shared.resume()
        assert all(future.result(WAIT_S).first_sequence == 1 for future in told)


@pytest.mark.invariant("INV-07")
@pytest.mark.invariant("INV-13")
@pytest.mark.parametrize(("point", "are_there"), [("commit.before", 0), ("commit.after", 1)])
def test_lost_commit_is_uncertain_to_every_member_and_repeated_once(
    stores: Stores, point: str, are_there: int
) -> None:
    leases = holders(stores, 8)
    with crowded(stores) as crowd:
        told = [crowd.join(say, stores, lease, "lost?") for lease in leases]
        crowd.faults.fail(point, OSError("input/output error"), nth=2)
        crowd.go()
        lost = [future.exception(WAIT_S) for future in told]
    for lease, error in zip(leases, lost, strict=True):
        assert isinstance(error, Uncertain)
        assert error.operation_id is not None
        assert len(stored_texts(stores, lease)) == are_there
        again = stores.transcript.append_turn(
            lease, [UserMessage(text="lost?")], operation_id=OperationId(error.operation_id)
        )
        assert again.operation_id == error.operation_id
        assert stored_texts(stores, lease) == ["lost?"]


# Members


def test_failure_of_a_member_does_not_hurt_the_others(stores: Stores) -> None:
    leases = holders(stores, 5)
    stores.leases.release(leases[1])
    key = leases[3].reveal()[0].key

    def half(writer: Writer) -> None:
        where = {"scope_key": key.scope, "session_key": key.session}
        writer.run("sessions.set_title", title="half done", **where)
        raise ZeroDivisionError

    def unknown(writer: Writer) -> None:
        writer.run("transcript.add_batch")

    with crowded(stores) as crowd:
        told = [crowd.join(say, stores, lease, "mine") for lease in leases]
        broken = [crowd.join(stores.database.write, key, body) for body in (half, unknown)]
        crowd.go()
        assert isinstance(told[1].exception(WAIT_S), StaleLease)
        assert isinstance(broken[0].exception(WAIT_S), ZeroDivisionError)
        assert broken[1].exception(WAIT_S) is not None
        others = [told[at].result(WAIT_S).first_sequence for at in (0, 2, 3, 4)]
        assert (others, crowd.commits) == ([1] * 4, 2)
    assert [stored_texts(stores, lease) for lease in leases] == [["mine"], [], *[["mine"]] * 3]
    assert stores.sessions.read(ANA, leases[3].session_id).title is None


def test_batch_of_failures_commits_nothing(stores: Stores) -> None:
    leases = holders(stores, 3)
    for lease in leases:
        stores.leases.release(lease)
    with crowded(stores) as crowd:
        told = [crowd.join(say, stores, lease, "too late") for lease in leases]
        crowd.go()
        assert all(isinstance(future.exception(WAIT_S), StaleLease) for future in told)
        assert crowd.commits == 1


@pytest.mark.invariant("INV-14")
def test_full_disk_under_one_member_leaves_the_others_whole(stores: Stores) -> None:
    leases = holders(stores, 6)
    large, operation = UserMessage(text="x" * limits.MIB), OperationId(uuid4())
    with crowded(stores) as crowd:
        told = []
        for at, lease in enumerate(leases):
            turn = [large if at in (1, 4) else UserMessage(text="small")]
            named = {"operation_id": operation} if at == 4 else {}
            told.append(crowd.join(stores.transcript.append_turn, lease, turn, **named))
        bound_pages(stores, room=40)
        crowd.go()
        for at, future in enumerate(told):
            if at in (1, 4):
                assert isinstance(future.exception(WAIT_S), StorageFull)
            else:
                assert future.result(WAIT_S).first_sequence == 1
        alone = 4
        assert crowd.commits == 1 + alone, "SQLite gave the shared transaction up"
    for at, lease in enumerate(leases):
        assert len(stored_texts(stores, lease)) == (0 if at in (1, 4) else 1)
        assert stores.transcript.verify(ANA, lease.session_id).event_count == (at not in (1, 4))
    bound_pages(stores, room=100_000)
    receipt = stores.transcript.append_turn(leases[4], [large], operation_id=operation)
    assert receipt.first_sequence == 1


def test_full_disk_under_a_single_writer_is_storage_full(stores: Stores) -> None:
    (lease,) = holders(stores, 1)
    bound_pages(stores, room=40)
    with pytest.raises(StorageFull) as full:
        say(stores, lease, "x" * limits.MIB)
    assert full.value.retryable
    assert say(stores, lease, "small").first_sequence == 1
    bound_pages(stores, room=100_000)
    assert say(stores, lease, "x" * limits.MIB).first_sequence == 2


def bound_pages(stores: Stores, *, room: int) -> None:
    """Lets the database grow by `room` pages, as on a disk that is nearly full.

    Called while the writer is idle or held in a fault point.
    """
    writer = database_of(stores)._writer
    ((pages,),) = writer.execute("PRAGMA page_count")
    list(writer.execute(f"PRAGMA max_page_count = {pages + room}"))


# Waiting


def test_writer_whose_wait_ends_in_line_is_withdrawn(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient, patient = holders(stores, 2)
    with crowded(stores) as crowd:
        told = crowd.join(say, stores, patient, "I can wait")
        monkeypatch.setattr(sqlite_database, "_BUSY_WAIT_S", 0.05)
        with pytest.raises(Busy) as busy:
            say(stores, impatient, "I cannot")
        assert busy.value.retryable
        assert len(line_of(stores)) == 1
        monkeypatch.undo()
        crowd.go()
        assert told.result(WAIT_S).first_sequence == 1
    assert stored_texts(stores, impatient) == []
    assert say(stores, impatient, "now I can").first_sequence == 1


def test_writer_that_was_taken_waits_for_its_outcome(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound_s = 1.5
    leases = holders(stores, 3)
    with crowded(stores) as crowd:
        told = [crowd.join(say, stores, lease, "leads") for lease in leases[:1]]
        shared = crowd.faults.pause("commit.before", nth=2)
        monkeypatch.setattr(sqlite_database, "_BUSY_WAIT_S", bound_s)
        told += [crowd.join(say, stores, lease, "is taken") for lease in leases[1:]]
        crowd.go()
        shared.wait()
        with pytest.raises(TimeoutError):
            told[-1].result(bound_s)
        assert not any(future.done() for future in told)
        shared.resume()
        assert [future.result(WAIT_S).first_sequence for future in told] == [1, 1, 1]


@pytest.mark.parametrize(
    ("bound", "most", "commits"),
    [("commit_turns_max", 4, 1 + 3), ("commit_bytes_max", 3_000, 1 + 5)],
)
def test_shared_transaction_is_bounded(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, commits: int
) -> None:
    assert (limits.commit_turns_max, limits.commit_bytes_max) == (32, 16 * limits.MIB)
    leases = holders(stores, 9)
    monkeypatch.setattr(limits, bound, most)
    with crowded(stores) as crowd:
        told = [crowd.join(say, stores, lease, "x" * 1_200) for lease in leases]
        crowd.go()
        assert [future.result(WAIT_S).first_sequence for future in told] == [1] * 9
        assert crowd.commits == commits


def test_receipts_of_one_commit_are_each_their_own(stores: Stores) -> None:
    leases = holders(stores, 20)
    with crowded(stores) as crowd:
        told = [crowd.join(say, stores, lease, f"by {at}") for at, lease in enumerate(leases)]
        crowd.go()
        receipts: list[AppendReceipt] = [future.result(WAIT_S) for future in told]
    assert [one.session_id for one in receipts] == [lease.session_id for lease in leases]
    assert len({one.operation_id for one in receipts}) == 20
    for at, (lease, receipt) in enumerate(zip(leases, receipts, strict=True)):
        assert stored_texts(stores, lease) == [f"by {at}"]
        assert stores.transcript.verify(ANA, lease.session_id).link == receipt.link
