"""Progress of long work: on standard error, on a terminal, once it has taken a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final

from engrain.apps.cli.output import is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S: Final = 1.0


class Bar:
    """Call it with (done, in all), in bytes. It is gone when the `with` block ends."""

    def __init__(self, what: str, *, is_quiet: bool, patience_s: float = PATIENCE_S) -> None:
        self._what = what
        self._patience_s = patience_s
        self._is_shown = not is_quiet and is_terminal(sys.stderr)
        self._started_s = time.monotonic()
        self._drawn: tuple[Progress, TaskID] | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._drawn is None:
            if not self._is_shown or time.monotonic() - self._started_s < self._patience_s:
                return
            self._drawn = _draw(self._what)
        progress, task = self._drawn
        progress.update(task, completed=done, total=total)

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawn is not None:
            self._drawn[0].stop()


def _draw(what: str) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        RenderableColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    progress = Progress(
        RenderableColumn(Text(what)),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    progress.start()
    return progress, progress.add_task("", total=None)
