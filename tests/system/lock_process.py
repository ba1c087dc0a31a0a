"""A process that takes a file lock and talks about it over its pipes.

Usage: lock_process.py hold|take|fork|share LOCK [TURNS JOURNAL NUMBER]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from engrain.system.locks import FileLock

WAIT_US = 60_000_000
_BETWEEN_TURNS_S = 0.0001


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def hold(lock: FileLock) -> None:
    """Holds the lock until a line comes in."""
    lock.acquire(WAIT_US)
    say("held")
    sys.stdin.readline()
    lock.release()
    say("released")


def take(lock: FileLock) -> None:
    """Takes the lock once, when it comes, and says so while it holds it."""
    lock.acquire(WAIT_US)
    say("held")
    lock.release()


def fork(lock: FileLock) -> None:
    """Holds the lock; a forked child lives on until a line comes in."""
    lock.acquire(WAIT_US)
    if os.fork() == 0:
        say("held")
        sys.stdin.readline()
        os._exit(0)
    os.wait()


def share(lock: FileLock, turns: int, journal: Path, number: int) -> None:
    """Takes `turns` turns and notes them in the journal: a small letter comes, a capital is served.

    The letter is number `number` of the alphabet. What is served is written durably.
    """
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND)
    say("ready")
    sys.stdin.readline()
    for _ in range(turns):
        os.write(descriptor, bytes([ord("a") + number]))
        lock.acquire(WAIT_US)
        os.write(descriptor, bytes([ord("A") + number]))
        os.fdatasync(descriptor)
        lock.release()
        _work()
    os.close(descriptor)


def _work() -> None:
    """What a writer does between two commits: a little computing, no waiting."""
    until = time.monotonic() + _BETWEEN_TURNS_S
    while time.monotonic() < until:
        pass


def main(role: str, path: str, *rest: str) -> None:
    lock = FileLock(Path(path))
    if role == "share":
        turns, journal, number = rest
        share(lock, int(turns), Path(journal), int(number))
    else:
        {"hold": hold, "take": take, "fork": fork}[role](lock)
    lock.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
