"""What tools did and what callers were told, kept outside the database as whole, checked lines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec


class Log:
    """Lines that several processes append, each in one write: its length, then JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, *words: object) -> None:
        line = msgspec.json.encode(words)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            written = os.write(descriptor, b"%06d %s\n" % (len(line), line))
            assert written == len(line) + 8, "a torn line"
        finally:
            os.close(descriptor)

    def read(self) -> list[list[Any]]:
        """Every line; fails for one that is not as long as it says."""
        if not self._path.exists():
            return []
        lines = self._path.read_bytes().split(b"\n")
        assert lines.pop() == b"", "the last line is torn"
        for line in lines:
            assert int(line[:6]) == len(line) - 7, "a torn line"
        return [msgspec.json.decode(line[7:]) for line in lines]


class Logs:
    """Effects: call id and key. Answers: session, prompt and answer of an acknowledged turn."""

    def __init__(self, folder: Path) -> None:
        self.effects = Log(folder / "effects")
        self.answers = Log(folder / "answers")
