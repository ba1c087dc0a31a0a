"""Tells how much of long work is done, by the bytes of the files, and what is being done."""

from __future__ import annotations

import io
from typing import BinaryIO

from engrain.contracts.imports import Doing, Progress, SourceFile

_BUFFER_BYTES = 256 * 1024


class Meter:
    """Counts the work on several files, one after the other; what it reports never goes back."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._done = 0
        self._reported = 0
        self._size = 0
        self._rounds = 1
        self._progress = progress

    def watch(self, source: SourceFile, passes: int = 1) -> SourceFile:
        """The source, with its reads reported; it is opened `passes` times from its beginning."""
        self._size, self._rounds = source.size, passes + 1
        opened = iter(range(passes))

        def opener() -> BinaryIO:
            before = next(opened, passes - 1) * source.size
            return io.BufferedReader(_Watched(source.open(), self, before), _BUFFER_BYTES)

        return SourceFile(name=source.name, size=source.size, open=opener)

    def read(self, position: int) -> None:
        """Reports that the current file was read up to `position`, over all its passes."""
        self._report(self._done + position // self._rounds, "reading")

    def index(self, done: int, of: int) -> None:
        """Reports that so many of the current file's sessions are indexed: its last round."""
        position = (self._rounds - 1) * self._size + self._size * done // max(of, 1)
        self._report(self._done + position // self._rounds, "indexing")

    def wait(self) -> None:
        """Reports that another import holds what this one needs."""
        self._report(self._reported, "waiting")

    def finish(self, source: SourceFile) -> None:
        """Reports that the current file is done."""
        self._done += source.size
        self._size = 0
        self._report(self._done, "reading")

    def _report(self, done: int, doing: Doing) -> None:
        self._reported = max(self._reported, min(done, self._total))
        if self._progress is not None:
            self._progress(self._reported, self._total, doing)


class _Watched(io.RawIOBase):
    def __init__(self, stream: BinaryIO, meter: Meter, position: int) -> None:
        self._stream = stream
        self._meter = meter
        self._position = position

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        self._meter.read(self._position)
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()
