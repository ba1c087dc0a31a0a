"""Group commit: writes of concurrent threads share one transaction and one sync.

The first thread that comes leads: it passes the turnstile, takes what the others have queued, runs
all of it on the one write connection with a savepoint each, commits once, and hands the lead on.
With one writer there is no other thread, no savepoint and no wait.

A thread may be interrupted anywhere, by Ctrl-C or by any signal handler that raises. Who leads is
kept as the work that leads, so that whatever stands can be undone twice: `_abandon` does that.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from engrain.contracts import limits
from engrain.contracts.errors import Busy, Refused

Body = Callable[[Any], Any]


class Work:
    """One write on its way: its body, then its outcome.

    It counts as done when `is_durable` is set, which only a COMMIT that returned does (INV-07).
    """

    __slots__ = ("body", "error", "is_durable", "is_taken", "result", "signal", "size")

    def __init__(self, body: Body, size: int) -> None:
        self.body = body
        self.size = size
        self.signal: threading.Lock | None = None
        self.is_taken = False
        self.is_durable = False
        self.result: Any = None
        self.error: BaseException | None = None

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result

    def wake(self) -> None:
        """Lets the thread that waits for this go on; twice is harmless."""
        assert self.signal is not None
        if self.signal.locked():
            self.signal.release()


class CommitQueue:
    """Orders writes of this process. `commit` runs a batch and fills in every outcome.

    `recover` puts right what an interrupted `enter`, `commit` or `leave` left behind.
    """

    def __init__(
        self,
        enter: Callable[[float], None],
        commit: Callable[[list[Work]], None],
        leave: Callable[[float], None],
        *,
        recover: Callable[[], None],
    ) -> None:
        self._enter = enter
        self._commit = commit
        self._leave = leave
        self._recover = recover
        self._lock = threading.RLock()  # a destructor may write while its thread holds it
        self._waiting: deque[Work] = deque()
        self._leader: Work | None = None
        self._is_closed = False

    def submit(self, body: Body, *, size: int, wait_s: float) -> Any:
        """The body's result once it is durable; `Busy` when its wait ends before it was taken."""
        work = Work(body, size)
        batch = [work]
        try:
            if not self._take_lead(work):
                self._await_turn(work, wait_s)
            if self._leader is work:
                self._lead(batch, wait_s)
        except BaseException:
            self._abandon(batch)
            raise
        return work.outcome()

    def try_submit(self, body: Body) -> Work | None:
        """The finished work, or None at once when another thread leads or the turnstile is shut."""
        work = Work(body, 0)
        batch = [work]
        try:
            with self._lock:
                if self._leader is not None or self._is_closed:
                    return None
                self._leader = work
            self._lead(batch, 0.0)
        except BaseException:
            self._abandon(batch)
            raise
        return None if isinstance(work.error, Busy) else work

    def close(self, wait_s: float) -> None:
        """Waits for the writes that are under way, and refuses all others from then on.

        Raises `Busy` when one of them takes longer than `wait_s`.
        """
        is_leading = False
        while not is_leading:  # whoever leads may take a place in line for one more write
            work = Work(lambda _: None, 0)
            try:
                if not self._take_lead(work):
                    self._await_turn(work, wait_s)
                is_leading = self._leader is work
                if is_leading:
                    self._turn_away()
            finally:
                self._abandon([work])

    def _turn_away(self) -> None:
        with self._lock:
            self._is_closed = True
            for late in self._waiting:
                late.error = Refused("the memory is closed")
                late.wake()
            self._waiting.clear()

    def _take_lead(self, work: Work) -> bool:
        with self._lock:
            if self._is_closed:
                raise Refused("the memory is closed")
            if self._leader is None:
                self._leader = work
                return True
            work.signal = threading.Lock()
            work.signal.acquire()
            self._waiting.append(work)
            return False

    def _await_turn(self, work: Work, wait_s: float) -> None:
        assert work.signal is not None
        if work.signal.acquire(timeout=wait_s):
            return
        with self._lock:
            if not work.is_taken and self._leader is not work:
                self._waiting.remove(work)
                raise Busy("the write queue did not move within the wait", retry_after_s=0.1)
        if work.is_taken:
            work.signal.acquire()  # its outcome is on the way

    def _lead(self, batch: list[Work], wait_s: float) -> None:
        try:
            self._enter(wait_s)
            try:
                self._gather(batch)
                self._commit(batch)
                _wake_members(batch)  # what is durable need not wait for a checkpoint
            finally:
                self._leave(wait_s)
        except Exception as error:  # noqa: BLE001  (raised again by `outcome`)
            _fail_undone(batch, error)
        self._hand_on(batch)

    def _gather(self, batch: list[Work]) -> None:
        if not self._waiting:
            return
        size = batch[0].size
        with self._lock:
            while (first := self._first()) and len(batch) < limits.commit_turns_max:
                if first is not batch[0]:
                    size += first.size
                    if size > limits.commit_bytes_max:
                        break
                    first.is_taken = True
                    batch.append(first)
                self._waiting.popleft()

    def _first(self) -> Work | None:
        """Who has waited longest; what was settled while its taker was interrupted is dropped."""
        while self._waiting and self._waiting[0].error is not None:
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None

    def _hand_on(self, batch: list[Work]) -> None:
        """Wakes the members, and whoever leads next, who stays in line until it gathers."""
        _wake_members(batch)
        with self._lock:
            if self._leader is batch[0]:
                heir = self._leader = self._first()
                if heir is not None and heir.signal is not None:
                    heir.signal.release()  # no call before it, where an interrupt could come in

    def _abandon(self, batch: list[Work]) -> None:
        """Leaves the line or the lead to others; also what an interrupted `_hand_on` left undone.

        What was not committed is not done, and its thread is told so.
        """
        work = batch[0]
        with self._lock:
            if work in self._waiting and not work.is_taken:
                self._waiting.remove(work)
        if self._leader is work:
            try:
                self._recover()
            finally:
                _fail_undone(batch, Busy("the writer that led was interrupted; nothing was done"))
                self._hand_on(batch)


def _wake_members(batch: list[Work]) -> None:
    for member in batch[1:]:
        member.wake()


def _fail_undone(batch: list[Work], error: BaseException) -> None:
    for work in batch:
        if not work.is_durable and work.error is None:
            work.error = error
