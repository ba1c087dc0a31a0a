"""File locks over real processes: exclusive, fair, bounded, and freed by death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread, active_count

import pytest

from engrain.contracts.errors import Busy, Refused, UnsafeFile
from engrain.system.locks import FileLock
from engrain.system.private_files import create_private_file

_SCRIPT = Path(__file__).with_name("lock_process.py")
_LONG_US = 30_000_000
_SHORT_US = 20_000

needs_proc_locks = pytest.mark.skipif(
    not Path("/proc/locks").exists(), reason="only Linux tells who waits for a lock"
)


class Other:
    """Another process that takes the lock."""

    def __init__(self, role: str, path: Path, *rest: object) -> None:
        command = [sys.executable, str(_SCRIPT), role, str(path), *map(str, rest)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def nudge(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *_error: object) -> None:
        with self.process:  # closes the pipes, whose end the process takes for a nudge
            self.process.communicate(timeout=60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "db.lock"
    create_private_file(place)
    return place


@pytest.fixture
def lock(path: Path) -> Iterator[FileLock]:
    opened = FileLock(path)
    yield opened
    opened.close()


def _await(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not claim():
        assert time.monotonic() < deadline, "it never came true"
        os.sched_yield()


def _count_waiting(path: Path) -> int:
    """How many requests stand in the kernel's line for the lock on `path`."""
    inode = path.stat().st_ino
    lines = Path("/proc/locks").read_text().splitlines()
    return sum("->" in line and f":{inode} " in line for line in lines)


def _await_waiting(path: Path, count: int) -> None:
    _await(lambda: _count_waiting(path) == count)


def _is_free(path: Path) -> bool:
    probe = FileLock(path)
    try:
        probe.acquire(0)
    except Busy:
        return False
    finally:
        probe.close()
    return True


def test_a_held_lock_excludes_other_processes(path: Path, lock: FileLock) -> None:
    with Other("hold", path) as other:
        assert other.hear() == "held"
        with pytest.raises(Busy):
            lock.acquire(0)
        other.nudge()
        assert other.hear() == "released"
        lock.acquire(0)
        assert not _is_free(path)
        lock.release()
    assert _is_free(path)


def test_two_locks_of_one_process_exclude_each_other(path: Path, lock: FileLock) -> None:
    second = FileLock(path)
    lock.acquire(0)
    with pytest.raises(Busy):
        second.acquire(_SHORT_US)
    lock.release()
    second.acquire(_LONG_US)
    second.close()


def test_threads_that_share_a_lock_exclude_each_other(lock: FileLock) -> None:
    counted = 0

    def count() -> None:
        nonlocal counted
        for _ in range(300):
            lock.acquire(_LONG_US)
            seen = counted
            os.sched_yield()
            counted = seen + 1
            lock.release()

    threads = [Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted == 1_200


def test_a_wait_for_another_thread_is_bounded(lock: FileLock) -> None:
    lock.acquire(0)
    errors: list[BaseException] = []

    def want() -> None:
        try:
            lock.acquire(_SHORT_US)
        except Busy as error:
            errors.append(error)

    thread = Thread(target=want)
    thread.start()
    thread.join()
    assert len(errors) == 1
    lock.release()


def test_a_wait_for_another_process_is_bounded_and_says_when_to_retry(
    path: Path, lock: FileLock
) -> None:
    with Other("hold", path) as other:
        assert other.hear() == "held"
        began = time.monotonic()
        with pytest.raises(Busy) as refused:
            lock.acquire(50_000)
        assert 0.05 <= time.monotonic() - began < 5
        assert refused.value.facts()["retry_after_s"] == 0.1


def test_without_contention_no_thread_is_started(lock: FileLock) -> None:
    before = active_count()
    for _ in range(100):
        lock.acquire(_LONG_US)
        lock.release()
    assert active_count() == before


def test_a_call_that_may_not_wait_starts_no_thread(path: Path, lock: FileLock) -> None:
    with Other("hold", path) as other:
        assert other.hear() == "held"
        before = active_count()
        with pytest.raises(Busy):
            lock.acquire(0)
        assert active_count() == before


@needs_proc_locks
def test_who_comes_first_is_served_first(path: Path, lock: FileLock, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    lock.acquire(0)
    with ExitStack() as stack:
        for number in range(5):
            other = stack.enter_context(Other("share", path, 1, journal, number))
            assert other.hear() == "ready"
            other.nudge()
            _await_waiting(path, number + 1)
        lock.release()
    assert journal.read_text("ascii") == "abcdeABCDE"


def test_sixteen_processes_are_served_about_in_the_order_they_come(
    path: Path, tmp_path: Path
) -> None:
    """Counted in turns and not in time, so that a busy machine changes little.

    Where the last holder may take a lock again before a waiter is awake, half of all calls are
    served at once, and some only after hundreds of others.
    """
    processes, turns = 16, 60
    journal = tmp_path / "journal"
    journal.touch()
    with ExitStack() as stack:
        others = [
            stack.enter_context(Other("share", path, turns, journal, number))
            for number in range(processes)
        ]
        assert [other.hear() for other in others] == ["ready"] * processes
        for other in others:
            other.nudge()
    notes = journal.read_text("ascii")
    assert Counter(notes.lower()) == dict.fromkeys("abcdefghijklmnop", 2 * turns)
    passed = sorted(_count_passed(notes))
    assert passed[len(passed) // 2] >= processes // 2
    assert passed[len(passed) * 99 // 100] <= 6 * processes


def _count_passed(notes: str) -> Iterator[int]:
    """For every turn, how many others were served between its coming and its being served."""
    served = 0
    came: dict[str, int] = {}
    for note in notes:
        if note.islower():
            came[note] = served
        else:
            yield served - came[note.lower()]
            served += 1


@needs_proc_locks
def test_a_lock_won_after_its_caller_gave_up_is_released_at_once(
    path: Path, lock: FileLock
) -> None:
    with Other("hold", path) as holder:
        assert holder.hear() == "held"
        with pytest.raises(Busy):
            lock.acquire(_SHORT_US)
        _await_waiting(path, 1)
        with Other("take", path) as next_one:
            _await_waiting(path, 2)
            holder.nudge()
            assert next_one.hear() == "held"
    _await(lambda: _is_free(path))


@needs_proc_locks
def test_a_caller_that_comes_back_takes_up_its_place_in_line(path: Path, lock: FileLock) -> None:
    with Other("hold", path) as holder:
        assert holder.hear() == "held"
        with pytest.raises(Busy):
            lock.acquire(_SHORT_US)
        with Other("take", path) as later:
            _await_waiting(path, 2)
            with pytest.raises(Busy):
                lock.acquire(_SHORT_US)
            assert _count_waiting(path) == 2
            waiter = Thread(target=lock.acquire, args=(_LONG_US,))
            waiter.start()
            _await(lambda: lock._place is not None and lock._place._is_wanted)
            holder.nudge()
            waiter.join()
            assert later.process.poll() is None
            _await_waiting(path, 1)
            lock.release()
            assert later.hear() == "held"


@needs_proc_locks
def test_closing_leaves_the_line_without_freeing_another_file(path: Path) -> None:
    lock = FileLock(path)
    with Other("hold", path) as holder:
        assert holder.hear() == "held"
        with pytest.raises(Busy):
            lock.acquire(_SHORT_US)
        lock.close()
        lock.close()
        holder.nudge()
        assert holder.hear() == "released"
    _await(lambda: _is_free(path) and not _count_open(path))
    with pytest.raises(Refused):
        lock.acquire(0)


def _count_open(path: Path) -> int:
    """How many descriptors of this process lead to `path`."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found += entry.readlink() == path
        except FileNotFoundError:
            continue
    return found


@needs_proc_locks
def test_an_interrupted_wait_holds_nothing(path: Path, lock: FileLock) -> None:
    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    def interrupt_when_waiting() -> None:
        _await_waiting(path, 1)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Other("hold", path) as holder:
            assert holder.hear() == "held"
            thread = Thread(target=interrupt_when_waiting)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                lock.acquire(_LONG_US)
            thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    _await(lambda: _is_free(path))
    lock.acquire(_LONG_US)


def test_a_killed_holder_frees_the_lock(path: Path, lock: FileLock) -> None:
    with Other("hold", path) as other:
        assert other.hear() == "held"
        other.kill()
        lock.acquire(_LONG_US)


def test_a_killed_holder_frees_the_lock_though_its_forked_child_lives_on(
    path: Path, lock: FileLock
) -> None:
    with Other("fork", path) as other:
        assert other.hear() == "held"
        with pytest.raises(Busy):
            lock.acquire(0)
        other.kill()
        lock.acquire(_LONG_US)


def test_a_forked_child_neither_owns_nor_frees_its_parents_lock(path: Path, lock: FileLock) -> None:
    lock.acquire(0)
    child = os.fork()
    if child == 0:
        os._exit(_try_to_steal(lock))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not _is_free(path)
    lock.release()
    assert _is_free(path)


def _try_to_steal(lock: FileLock) -> int:
    """0 when the child could do nothing with its parent's lock."""
    try:
        lock.release()
        lock.acquire(0)
    except Refused:
        lock.close()
        return 0
    except Busy:
        return 2
    return 1


def _link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to(path.with_name("real"))


def _make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir(0o600)


@pytest.mark.invariant("INV-01")
@pytest.mark.parametrize(
    "spoil",
    [
        _link,
        _make_fifo,
        _make_directory,
        Path.unlink,
        lambda path: path.chmod(0o644),
        lambda path: path.with_name("twin").hardlink_to(path),
    ],
    ids=["link", "fifo", "directory", "absent", "mode", "hard-link"],
)
def test_a_lock_file_that_is_not_private_is_refused_at_once(
    path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(path)
    began = time.monotonic()
    with pytest.raises(UnsafeFile, match=path.name):
        FileLock(path)
    assert time.monotonic() - began < 1
