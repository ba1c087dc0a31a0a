"""Which formats there are, and which of them a file is."""

from __future__ import annotations

from typing import Final

from engrain.contracts import limits
from engrain.contracts.errors import UnknownFormat
from engrain.contracts.imports import FormatReader
from engrain.formats.archive import ArchiveReader
from engrain.formats.chatgpt import ChatGptReader
from engrain.formats.claude import ClaudeReader
from engrain.formats.claude_code import ClaudeCodeReader
from engrain.formats.locomo import LocomoReader

head_bytes: Final = 64 * limits.KIB
"""How much of a file's beginning `recognise` looks at."""

READERS: tuple[FormatReader, ...] = (
    ArchiveReader(),
    ClaudeCodeReader(),
    ClaudeReader(),
    ChatGptReader(),
    LocomoReader(),
)


def recognise(name: str, head: bytes) -> FormatReader | None:
    """The reader of a file with this name and these first bytes, if there is one."""
    head = head[:head_bytes]
    return next((reader for reader in READERS if reader.recognises(name, head)), None)


def reader_named(name: str) -> FormatReader:
    """The reader of the format `name`; raises `UnknownFormat` and says which there are."""
    for reader in READERS:
        if reader.name == name:
            return reader
    known = ", ".join(sorted(reader.name for reader in READERS))
    raise UnknownFormat(f"there is no format {name!r}; known are {known}")
