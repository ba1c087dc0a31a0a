"""Tells how much of long work is done, by the bytes that were read."""

from __future__ import annotations

import io
from typing import BinaryIO

from engrain.contracts.imports import Progress, SourceFile

_BUFFER_BYTES = 256 * 1024


class Meter:
    """Counts the bytes read of several files and reports them; what it reports never goes back."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._done = 0
        self._reported = 0
        self._progress = progress

    def watch(self, source: SourceFile, passes: int = 1) -> SourceFile:
        """The source, with its reads reported; it is opened `passes` times from its beginning."""
        opened = iter(range(passes))

        def opener() -> BinaryIO:
            before = next(opened, passes - 1) * source.size
            stream = source.open()
            return io.BufferedReader(_Watched(stream, self, (before, passes)), _BUFFER_BYTES)

        return SourceFile(name=source.name, size=source.size, open=opener)

    def at(self, position: int) -> None:
        """Reports that the current file was read up to `position`."""
        self._reported = max(self._reported, min(self._done + position, self._total))
        if self._progress is not None:
            self._progress(self._reported, self._total)

    def finish(self, source: SourceFile) -> None:
        """Reports that the current file is done."""
        self._done += source.size
        self.at(0)


class _Watched(io.RawIOBase):
    def __init__(self, stream: BinaryIO, meter: Meter, share: tuple[int, int]) -> None:
        self._stream = stream
        self._meter = meter
        self._position, self._passes = share

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        self._meter.at(self._position // self._passes)
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()
