"""Group commit: writes of concurrent threads share one transaction and one sync.

The first thread that comes leads: it passes the turnstile, takes what the others have queued, runs
all of it on the one write connection with a savepoint each, commits once, and hands the lead on.
With one writer there is no other thread, no savepoint and no wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from engrain.contracts import limits
from engrain.contracts.errors import Busy

Body = Callable[[Any], Any]


class Work:
    """One write on its way: its body, then its outcome. `led` tells its thread to lead.

    It counts as done when `is_durable` is set, which only a COMMIT that returned does (INV-07).
    """

    __slots__ = ("body", "error", "is_durable", "is_taken", "led", "result", "signal", "size")

    def __init__(self, body: Body, size: int) -> None:
        self.body = body
        self.size = size
        self.signal: threading.Lock | None = None
        self.is_taken = False
        self.is_durable = False
        self.led = False
        self.result: Any = None
        self.error: BaseException | None = None

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class CommitQueue:
    """Orders writes of this process. `commit` runs a batch and fills in every outcome."""

    def __init__(
        self,
        enter: Callable[[float], None],
        commit: Callable[[list[Work]], None],
        leave: Callable[[float], None],
    ) -> None:
        self._enter = enter
        self._commit = commit
        self._leave = leave
        self._lock = threading.Lock()
        self._waiting: deque[Work] = deque()
        self._is_led = False

    def submit(self, body: Body, *, size: int, wait_s: float) -> Any:
        """The body's result once it is durable; `Busy` when its wait ends before it was taken."""
        work = Work(body, size)
        if not self._take_lead(work):
            self._await_turn(work, wait_s)
            if not work.led:
                return work.outcome()
        self._lead(work, wait_s)
        return work.outcome()

    def try_submit(self, body: Body) -> Work | None:
        """The finished work, or None at once when another thread leads or the turnstile is shut."""
        work = Work(body, 0)
        with self._lock:
            if self._is_led:
                return None
            self._is_led = True
        self._lead(work, 0.0)
        return None if isinstance(work.error, Busy) else work

    def _take_lead(self, work: Work) -> bool:
        with self._lock:
            if not self._is_led:
                self._is_led = True
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
            if not work.is_taken and not work.led:
                self._waiting.remove(work)
                raise Busy("the write queue did not move within the wait", retry_after_s=0.1)
        work.signal.acquire()  # taken: its outcome is on the way

    def _lead(self, work: Work, wait_s: float) -> None:
        batch = [work]
        try:
            self._enter(wait_s)
            try:
                self._gather(batch)
                self._commit(batch)
            finally:
                self._leave(wait_s)
        except Exception as error:  # noqa: BLE001  (raised again by `outcome`)
            _fail_undone(batch, error)
        except BaseException:
            _fail_undone(batch, Busy("the writer that led was interrupted; nothing was done"))
            raise
        finally:
            _wake(batch[1:])
            self._hand_on()

    def _gather(self, batch: list[Work]) -> None:
        if not self._waiting:
            return
        size = batch[0].size
        with self._lock:
            while self._waiting and len(batch) < limits.commit_turns_max:
                size += self._waiting[0].size
                if size > limits.commit_bytes_max:
                    break
                member = self._waiting.popleft()
                member.is_taken = True
                batch.append(member)

    def _hand_on(self) -> None:
        with self._lock:
            if not self._waiting:
                self._is_led = False
                return
            heir = self._waiting.popleft()
            heir.led = True
        assert heir.signal is not None
        heir.signal.release()


def _fail_undone(batch: list[Work], error: BaseException) -> None:
    for work in batch:
        if not work.is_durable and work.error is None:
            work.error = error


def _wake(members: list[Work]) -> None:
    for member in members:
        assert member.signal is not None
        member.signal.release()
