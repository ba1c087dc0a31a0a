"""How the lines of a Claude Code transcript hang together, read before their words.

Lines name their parent. A prompt that was typed anew shares its parent with the one it replaces;
the earlier one and all that follows from it are abandoned. Lines that say nothing, `progress` most
of all, stand in between and are stepped through. A null parent and one that is not in the file
abandon nothing. Memory grows with the count of lines, never with their size.
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any, Final

from engrain.contracts.imports import Skipped, SourceFile
from engrain.formats.documents import (
    Record,
    id_of,
    iter_documents,
    record_of,
    records_of,
    text_of,
    title_of,
)
from engrain.formats.json_stream import iter_lines

_MISSPELT: Final = str.maketrans("", "", "_-")
_TITLE_FIELDS: Final = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
_INJECTED: Final = re.compile(
    r"\s*<(?:command-(?:name|message|args)|local-command-[a-z]+|bash-(?:input|stdout|stderr)"
    r"|system-reminder|task-notification|user-memory-input)>"
)
_INTERRUPTED: Final = re.compile(r"\s*\[Request interrupted by user[^\]]*\]\s*")


def field(record: Record, name: str) -> Any:
    """The field `name`, or the one that differs from it in case, `_` or `-` alone."""
    if name in record:
        return record[name]
    folded = name.lower()
    return next((v for k, v in record.items() if k.translate(_MISSPELT).lower() == folded), None)


def nobodys_words(text: str) -> str:
    """A skip word for what the program wrote as a user's text; empty for a person's words."""
    if not text.strip():
        return "empty"
    if _INTERRUPTED.fullmatch(text):
        return "interrupted"
    return "injected" if _INJECTED.match(text) else ""


def is_prompt(record: Record) -> bool:
    """True for a line with words of a person (or, in a sidechain, of the model that called it)."""
    if record.get("type") != "user" or field(record, "isMeta") is True:
        return False
    if field(record, "isCompactSummary") is True:
        return False
    content = record_of(record.get("message")).get("content")
    texts = [content] if isinstance(content, str) else _texts(content)
    return any(not nobodys_words(text) for text in texts)


def _texts(content: object) -> list[str]:
    return [text_of(b.get("text")) for b in records_of(content) if b.get("type") == "text"]


class Chain:
    """Which lines were abandoned, where each sidechain began, and the sessions' titles."""

    def __init__(self) -> None:
        self._stepped_over: dict[str, str] = {}
        self._prompts: dict[str, str] = {}
        self._abandoned: set[str] = set()
        self._roots: dict[str, str] = {}
        self._titles: dict[str, tuple[int, str]] = {}
        self._leaves: dict[str, str] = {}
        self._last: tuple[str, str] = ("", "")

    def add(self, record: Record) -> None:
        """Takes the next line of the file."""
        line_id = id_of(field(record, "uuid"))
        session = id_of(field(record, "sessionId")) or self._last[1]
        self._add_title(record, line_id, session)
        if not line_id:
            return
        self._last = line_id, session
        parent = self._parent(record)
        if record.get("type") not in ("user", "assistant"):
            self._stepped_over[line_id] = parent
        if field(record, "isSidechain") is True:  # several may start at one line; none is retyped
            self._roots[line_id] = self._roots.get(parent, parent or line_id)
        elif parent and is_prompt(record):
            replaced = self._prompts.get(parent, line_id)
            if replaced != line_id:
                self._abandoned.add(replaced)
            self._prompts[parent] = line_id

    def is_abandoned(self, record: Record) -> bool:
        """True for a replaced prompt and what follows from it; to be asked in the file's order."""
        line_id = id_of(field(record, "uuid"))
        if line_id in self._abandoned:
            return True
        if line_id and self._parent(record) in self._abandoned:
            self._abandoned.add(line_id)
            return True
        return False

    def root_of(self, line_id: str) -> str:
        """The id of the line that a sidechain goes back to."""
        return self._roots.get(line_id, line_id)

    def title_of(self, session: str) -> str | None:
        """The title that a person gave, else the one that was made for the session."""
        return self._titles[session][1] if session in self._titles else None

    def _parent(self, record: Record) -> str:
        """The nearest line above that says something."""
        named = field(record, "parentUuid") or field(record, "logicalParentUuid")
        parent = id_of(named)
        return self._stepped_over.get(parent, parent)

    def _add_title(self, record: Record, line_id: str, session: str) -> None:
        kind = text_of(record.get("type"))
        title = title_of(record.get(_TITLE_FIELDS[kind])) if kind in _TITLE_FIELDS else None
        if line_id in self._leaves:
            self._set_title(session, "summary", self._leaves.pop(line_id))
        if title and kind != "summary":
            self._set_title(session, kind, title)
        elif title and (leaf := id_of(field(record, "leafUuid"))):
            if leaf == self._last[0]:
                self._set_title(self._last[1], kind, title)
            self._leaves[leaf] = title

    def _set_title(self, session: str, kind: str, title: str) -> None:
        rank = list(_TITLE_FIELDS).index(kind)
        if rank >= self._titles.get(session, (0, ""))[0]:
            self._titles[session] = (rank, title)


def read_chain(file: SourceFile) -> Chain:
    """The chain of a whole file; broken lines are left to the second reading to count."""
    chain = Chain()
    with closing(file.open()) as stream:
        for document in iter_documents(iter_lines(stream), broken="broken_line"):
            if not isinstance(document, Skipped):
                chain.add(document.record)
    return chain
