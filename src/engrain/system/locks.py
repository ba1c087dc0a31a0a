"""File locks."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

from engrain.contracts.errors import Busy


class FileLock:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._mutex = threading.Lock()

    def acquire(self, wait_us: int) -> None:
        deadline = time.monotonic() + wait_us / 1e6
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Busy("locked") from None
                time.sleep(0.001)

    def release(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._fd)
