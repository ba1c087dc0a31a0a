"""Tells how much of long work is done, by the bytes that were read."""

from __future__ import annotations

import io
from typing import BinaryIO

from engrain.contracts.imports import Progress, SourceFile

_BUFFER_BYTES = 256 * 1024


class Meter:
    """Counts the bytes read of several files and reports them."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._done = 0
        self._progress = progress

    def watch(self, source: SourceFile) -> SourceFile:
        """The source, with its reads reported."""
        return SourceFile(name=source.name, size=source.size, open=lambda: self._open(source))

    def _open(self, source: SourceFile) -> BinaryIO:
        return io.BufferedReader(_Watched(source.open(), self), _BUFFER_BYTES)

    def at(self, position: int) -> None:
        """Reports that the current file was read up to `position`."""
        if self._progress is not None:
            self._progress(min(self._done + position, self._total), self._total)

    def finish(self, source: SourceFile) -> None:
        """Reports that the current file is done."""
        self._done += source.size
        self.at(0)


class _Watched(io.RawIOBase):
    def __init__(self, stream: BinaryIO, meter: Meter) -> None:
        self._stream = stream
        self._meter = meter
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        self._meter.at(self._position)
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()
