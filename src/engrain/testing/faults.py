"""Makes things go wrong at the named points of `engrain.contracts.faults`.

Points are named after what is about to be kept: `commit.before` and `commit.after` surround every
COMMIT, `migrate.statement` follows each statement of a migration, `create.publish` and
`copy.publish` come before a finished file gets its name.

    with Faults() as faults:
        faults.fail("commit.before", disk_full())
        ...

A process that shall die runs under `python -m engrain.testing.faults POINT NTH MODULE ARGUMENT…`.
"""

from __future__ import annotations

import errno
import os
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Callable
from threading import Event, Lock
from types import TracebackType

from engrain.contracts import faults

_WAIT_S = 60.0


class Faults:
    """What happens at fault points while the block lasts, on every thread of this process.

    Only one block at a time. Leaving it fails when something was planned for a point that was
    never reached: such a test shows nothing.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._plans: dict[tuple[str, int], Callable[[], None]] = {}
        self._counts: Counter[str] = Counter()
        self._reached: list[str] = []
        self._pauses: list[Pause] = []

    @property
    def reached(self) -> tuple[str, ...]:
        """The points that were reached, in their order, each as often as it was."""
        with self._lock:
            return tuple(self._reached)

    def act(self, point: str, action: Callable[[], None], *, nth: int = 1) -> None:
        """Calls `action` when `point` is reached for the `nth` time, on the thread that got there.

        Counted from the beginning of the block. A later plan for the same moment replaces it.
        """
        with self._lock:
            assert nth > self._counts[point], f"{point} was reached {nth} times already"
            self._plans[point, nth] = action

    def kill(self, point: str, *, nth: int = 1) -> None:
        """The process is killed there, as by `kill -9`: nothing of it runs any more."""
        self.act(point, kill_process, nth=nth)

    def fail(self, point: str, error: BaseException | None = None, *, nth: int = 1) -> None:
        """`error` is raised there; without one, that the disk is full."""
        raised = error or disk_full()

        def fail() -> None:
            raise raised

        self.act(point, fail, nth=nth)

    def pause(self, point: str, *, nth: int = 1) -> Pause:
        """The thread that gets there waits until it is told to go on, or the block ends."""
        pause = Pause(point)
        self._pauses.append(pause)
        self.act(point, pause.hold, nth=nth)
        return pause

    def _reach(self, point: str) -> None:
        with self._lock:
            self._reached.append(point)
            self._counts[point] += 1
            action = self._plans.pop((point, self._counts[point]), None)
        if action is not None:
            action()

    def __enter__(self) -> Faults:
        assert faults._hook is None, "fault points are armed already"
        faults.arm(self._reach)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        faults.arm(None)
        for pause in self._pauses:
            pause.resume()
        if error is None and self._plans:
            never = ", ".join(f"{point} ({nth})" for point, nth in sorted(self._plans))
            raise AssertionError(f"never reached: {never}; reached: {dict(self._counts)}")


class Pause:
    """A thread that is held at a point."""

    def __init__(self, point: str) -> None:
        self.point = point
        self._arrived = Event()
        self._resumed = Event()

    def wait(self, timeout_s: float = _WAIT_S) -> None:
        """Returns when a thread stands at the point; fails after `timeout_s`."""
        assert self._arrived.wait(timeout_s), f"nobody came to {self.point}"

    def resume(self) -> None:
        """Lets the thread go on, or not stop at all when it has not come yet."""
        self._resumed.set()

    def hold(self) -> None:
        self._arrived.set()
        assert self._resumed.wait(_WAIT_S), f"nobody resumed {self.point}"


def disk_full() -> OSError:
    """The error of a write for which the disk has no room."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def kill_process() -> None:
    """Ends this process at once, as `kill -9` does; no handler and no `finally` runs."""
    os.kill(os.getpid(), signal.SIGKILL)


def killing_command(point: str, nth: int, module: str, *arguments: str) -> list[str]:
    """The command that runs `python -m module …` and kills it at the `nth` reach of `point`."""
    return [sys.executable, "-m", __name__, point, str(nth), module, *arguments]


def main(point: str, nth: str, module: str, *arguments: str) -> None:
    """Runs a module as a program that dies at a point."""
    sys.argv = [module, *arguments]
    with Faults() as planned:
        planned.kill(point, nth=int(nth))
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
