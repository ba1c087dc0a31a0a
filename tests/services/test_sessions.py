"""`memory.sessions` and its one writer: what a `with` block, an error and neglect leave behind."""

from __future__ import annotations

import copy
import gc
import pickle
from pathlib import Path

import pytest

from engrain import (
    Memory,
    NotFound,
    Scope,
    SessionSnapshot,
    SessionWriter,
    Turn,
    UserMessage,
)
from engrain.contracts import limits
from engrain.contracts.errors import (
    SessionBusy,
    SnapshotMismatch,
    StaleLease,
    WorkspaceMismatch,
)
from engrain.testing.clock import HeldClock
from services.exports import ANA

START_US = 1_767_225_600_000_000


def test_a_writer_has_the_history_and_goes_on_from_it(memory: Memory) -> None:
    session = memory.sessions.start(ANA, title="trip")
    with memory.sessions.lease(ANA, session.id) as writer:
        assert writer.history == ()
        writer.append(Turn.said("I moved to Porto", reply="Noted"))
    with memory.sessions.lease(ANA, session.id) as writer:
        assert [stored.event.text for stored in writer.history] == ["I moved to Porto", "Noted"]
        assert [stored.turn for stored in writer.history] == [1, 1]
        receipt = writer.append((UserMessage(text="And you?"),))
        assert (receipt.first_sequence, receipt.last_sequence) == (3, 3)
        assert len(writer.history) == 2, "what the last replay held"
        assert len(writer.replay()) == len(writer.history) == 3


@pytest.mark.invariant("INV-10")
def test_a_session_has_one_writer_at_a_time(memory: Memory) -> None:
    session = memory.sessions.start(ANA)
    with memory.sessions.lease(ANA, session.id), pytest.raises(SessionBusy) as busy:
        memory.sessions.lease(ANA, session.id)
    assert busy.value.retryable
    assert 0 < (busy.value.retry_after_s or 0) <= limits.lease_ttl_us / limits.SECOND_US
    with memory.sessions.lease(ANA, session.id):
        pass


def test_leaving_the_block_frees_the_session_whether_it_failed_or_not(memory: Memory) -> None:
    session = memory.sessions.start(ANA)
    with pytest.raises(ZeroDivisionError), memory.sessions.lease(ANA, session.id) as writer:
        writer.append(Turn.said("kept"))
        raise ZeroDivisionError
    assert memory.sessions.read(ANA, session.id).leased_until is None
    with memory.sessions.lease(ANA, session.id) as again:
        assert len(again.history) == 1
    again.release()
    with pytest.raises(StaleLease):
        again.append(Turn.said("too late"))


@pytest.mark.invariant("INV-10")
def test_an_error_in_the_block_is_not_hidden_by_a_release_that_fails(tmp_path: Path) -> None:
    memory = Memory.open(tmp_path / "engrain.sqlite3")
    session = memory.sessions.start(ANA)
    with pytest.raises(ZeroDivisionError), memory.sessions.lease(ANA, session.id):
        memory.close()
        raise ZeroDivisionError


@pytest.mark.invariant("INV-10")
def test_a_writer_that_was_overtaken_is_refused_everywhere(quick_clock: HeldClock) -> None:
    with Memory.open(":memory:", clock=quick_clock) as memory:
        session = memory.sessions.start(ANA)
        paused = memory.sessions.lease(ANA, session.id)
        quick_clock.advance(limits.lease_ttl_us + 1)
        with memory.sessions.lease(ANA, session.id) as writer:
            for verb in (
                lambda: paused.append(Turn.said("late")),
                paused.renew,
                lambda: paused.bind_snapshot(SessionSnapshot(configuration={})),
            ):
                with pytest.raises(StaleLease):
                    verb()
            paused.release()
            writer.append(Turn.said("still the writer"))


@pytest.fixture
def quick_clock() -> HeldClock:
    return HeldClock(START_US)


def test_a_forgotten_writer_frees_its_session_when_it_is_collected(memory: Memory) -> None:
    session = memory.sessions.start(ANA)
    forgotten = memory.sessions.lease(ANA, session.id)
    assert memory.sessions.read(ANA, session.id).leased_until is not None
    del forgotten
    gc.collect()
    assert memory.sessions.read(ANA, session.id).leased_until is None


def test_a_writer_that_outlives_its_memory_is_collected_without_noise(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "engrain.sqlite3") as memory:
        session = memory.sessions.start(ANA)
        writer = memory.sessions.lease(ANA, session.id)
    del writer
    gc.collect()  # what a destructor raises fails the test run


@pytest.mark.invariant("INV-26")
def test_a_lease_cannot_be_copied_and_does_not_show_its_token(memory: Memory) -> None:
    session = memory.sessions.start(ANA)
    with memory.sessions.lease(ANA, session.id) as writer:
        lease = writer._lease
        _, token = lease.reveal()
        for copier in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                copier(lease)
        shown = f"{lease!r}{lease}{writer!r}{writer}"
        assert token.hex() not in shown
        assert repr(token) not in shown


def test_a_lease_that_cannot_replay_is_freed_at_once(quick_memory: Memory) -> None:
    session = quick_memory.sessions.start(ANA)
    with quick_memory.sessions.lease(ANA, session.id) as writer:
        writer.append(Turn.said("one", reply="two"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engrain.contracts.limits.replay_events_max", 1)
        with pytest.raises(Exception, match="replay_events_max"):
            quick_memory.sessions.lease(ANA, session.id)
    assert quick_memory.sessions.read(ANA, session.id).leased_until is None


@pytest.mark.invariant("INV-15")
def test_a_snapshot_is_bound_once_and_demanded_from_then_on(memory: Memory) -> None:
    session = memory.sessions.start(ANA)
    snapshot = SessionSnapshot(configuration={"model": "small"})
    with memory.sessions.lease(ANA, session.id) as writer:
        writer.bind_snapshot(snapshot)
        writer.append(Turn.said("hello"))
    assert memory.sessions.read_snapshot(ANA, session.id) == snapshot
    with memory.sessions.lease(ANA, session.id) as writer:
        writer.bind_snapshot(snapshot)
        with pytest.raises(SnapshotMismatch):
            writer.bind_snapshot(SessionSnapshot(configuration={"model": "large"}))


@pytest.mark.invariant("INV-15")
def test_a_fork_stands_on_its_prefix_and_says_where_it_came_from(memory: Memory) -> None:
    session = memory.sessions.start(ANA)
    with memory.sessions.lease(ANA, session.id) as writer:
        writer.append(Turn.said("one", reply="two"))
        writer.append(Turn.said("three"))
    fork = memory.sessions.fork(ANA, session.id, through=2, title="other")
    assert fork.forked_from is not None
    assert (fork.forked_from.session_id, fork.forked_from.sequence) == (session.id, 2)
    with memory.sessions.lease(ANA, fork.id) as writer:
        assert [stored.event.text for stored in writer.history] == ["one", "two"]
        writer.append(Turn.said("another three"))
    assert memory.sessions.verify(ANA, fork.id).event_count == 3
    assert memory.sessions.verify(ANA, session.id).event_count == 3


@pytest.mark.invariant("INV-20")
def test_another_scope_finds_nothing_of_a_session(memory: Memory) -> None:
    session = memory.sessions.start(ANA, title="trip")
    stranger = Scope(org="acme", user="ben")
    for verb in (
        lambda: memory.sessions.read(stranger, session.id),
        lambda: memory.sessions.lease(stranger, session.id),
        lambda: list(memory.sessions.iter_events(stranger, session.id)),
        lambda: memory.sessions.verify(stranger, session.id),
        lambda: memory.sessions.fork(stranger, session.id),
        lambda: memory.sessions.set_title(stranger, session.id, "mine"),
        lambda: memory.sessions.validate_workspace(stranger, session.id),
    ):
        with pytest.raises(NotFound):
            verb()
    assert memory.sessions.list(stranger).items == ()


@pytest.mark.invariant("INV-09")
def test_a_directory_that_was_replaced_fails_before_anything_is_replayed(
    quick_memory: Memory, tmp_path: Path
) -> None:
    place = tmp_path / "work"
    place.mkdir()
    session = quick_memory.sessions.start(ANA, workspace=place)
    quick_memory.sessions.validate_workspace(ANA, session.id)
    place.rmdir()
    place.mkdir()
    with pytest.raises(WorkspaceMismatch):
        quick_memory.sessions.validate_workspace(ANA, session.id)
    with pytest.raises(WorkspaceMismatch):
        quick_memory.sessions.lease(ANA, session.id)
    assert quick_memory.sessions.read(ANA, session.id).leased_until is None


def test_a_workspace_narrows_the_list_and_is_checked_by_the_lease(quick_memory: Memory) -> None:
    ours = quick_memory.sessions.start(ANA, workspace="shop")
    quick_memory.sessions.start(ANA, workspace="garden")
    assert [one.id for one in quick_memory.sessions.list(ANA, workspace="shop").items] == [ours.id]
    assert len(quick_memory.sessions.list(ANA).items) == 2
    with pytest.raises(WorkspaceMismatch):
        quick_memory.sessions.lease(ANA, ours.id, workspace="garden")
    with quick_memory.sessions.lease(ANA, ours.id, workspace="shop") as writer:
        assert isinstance(writer, SessionWriter)
