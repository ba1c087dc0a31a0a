"""Progress of long work: on standard error, on a terminal, once it has taken a second."""

from __future__ import annotations

import sys
import time
from threading import Lock, Timer
from types import TracebackType
from typing import TYPE_CHECKING, Final

from engrain.apps.cli.output import is_terminal, note

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from engrain.contracts.imports import Doing

PATIENCE_S: Final = 1.0
_WORDS: Final[dict[Doing, str]] = {
    "reading": "importing",
    "indexing": "indexing",
    "checking": "reading the model",
    "waiting": "waiting for another import of the same",
}


class Bar:
    """Call it with what is done, of how much, and what is being done.

    It appears after a second, even when nothing is reported then, and is gone when the `with`
    block ends. That the work waits for another is said without a terminal too, once.
    """

    def __init__(self, *, is_quiet: bool, patience_s: float = PATIENCE_S) -> None:
        self._is_quiet = is_quiet
        self._is_shown = not is_quiet and is_terminal(sys.stderr)
        self._has_waited = False
        self._lock = Lock()
        self._seen: tuple[int, int, Doing] = (0, 0, "reading")
        self._drawn: tuple[Progress, TaskID] | None = None
        self._due_s = time.monotonic() + patience_s
        self._timer = Timer(patience_s, self._draw)
        self._timer.daemon = True

    def __call__(self, done: int, total: int, doing: Doing) -> None:
        self._seen = (done, total, doing)
        if self._is_shown:
            if time.monotonic() >= self._due_s:
                self._draw()
        elif doing == "waiting" and not (self._is_quiet or self._has_waited):
            self._has_waited = True
            note(_WORDS[doing])

    def __enter__(self) -> Bar:
        if self._is_shown:
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_shown = False
            if self._drawn is not None:
                self._drawn[0].stop()

    def _draw(self) -> None:
        with self._lock:
            if not self._is_shown:
                return
            done, total, doing = self._seen
            self._drawn = self._drawn or _begin()
            progress, task = self._drawn
            is_news = progress.tasks[0].description != (words := _WORDS[doing])
            progress.update(
                task, completed=done, total=total or None, description=words, refresh=is_news
            )


def _begin() -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = progress.add_task(_WORDS["reading"], total=None)
    progress.start()
    return progress, task
