"""LoCoMo: long conversations of two persons, each of its sessions a session of its own.

Both speakers are persons, so every line is a `UserMessage` with its speaker. A turn begins when
`speaker_a` speaks. Dates have no zone in the source and are read as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from engrain.contracts.events import UserMessage
from engrain.contracts.imports import ImportItem, SessionBegins, Skipped, SourceFile
from engrain.formats.documents import (
    Document,
    Record,
    id_of,
    list_of,
    micros_of_spoken,
    read_elements,
    record_of,
    text_of,
    title_of,
)
from engrain.formats.turns import TurnBuilder, iter_session

_KEYS: Final = re.compile(rb'"(?:dia_id|speaker_a|session_\d+_date_time)"\s*:|"evidence"\s*:\s*\[')
_SESSION: Final = re.compile(r"session_(\d{1,9})")


class LocomoReader:
    """Reads LoCoMo's JSON, a list of samples or one."""

    name = "locomo"
    passes = 1

    def recognises(self, name: str, head: bytes) -> bool:
        return name.lower().endswith(".json") and bool(_KEYS.search(head))

    def read(self, file: SourceFile) -> Iterator[ImportItem]:
        return read_elements(file, _read_sample)


def _read_sample(document: Document, place: str) -> Iterator[ImportItem]:
    sample = document.record
    conversation = record_of(sample.get("conversation"))
    sample_id = id_of(sample.get("sample_id")) or place
    for key in sorted(filter(_SESSION.fullmatch, conversation), key=_session_number):
        begins = _begin(conversation, f"{sample_id}/{key}", key)
        yield from iter_session(begins, _read_turns(document, begins, key))


def _session_number(key: str) -> int:
    return int(key.removeprefix("session_"))


def _begin(conversation: Record, source_id: str, key: str) -> SessionBegins:
    date = text_of(conversation.get(f"{key}_date_time"))
    persons = [text_of(conversation.get(name)) for name in ("speaker_a", "speaker_b")]
    title = ", ".join(filter(None, [" and ".join(filter(None, persons)), date]))
    started_at = micros_of_spoken(date)
    return SessionBegins(source_id=source_id, title=title_of(title), started_at=started_at)


def _read_turns(document: Document, begins: SessionBegins, key: str) -> Iterator[ImportItem]:
    conversation = record_of(document.record.get("conversation"))
    first = text_of(conversation.get("speaker_a"))
    builder = TurnBuilder("import:locomo")
    for position, said in enumerate(list_of(conversation.get(key)), start=1):
        if not isinstance(said, dict):
            yield Skipped(f"{begins.source_id}:{position}", "not_an_object")
            continue
        speaker = text_of(said.get("speaker")) or None
        event = UserMessage(text=_words(said), speaker=speaker, occurred_at=begins.started_at)
        yield from builder.add(
            event,
            id_of(said.get("dia_id")) or str(position),
            starts_turn=speaker == first or not first,
            is_repaired=document.is_repaired,
        )
    yield from builder.finish()


def _words(said: Record) -> str:
    caption = text_of(said.get("blip_caption")).strip()
    picture = f"[picture: {caption}]" if caption else ""
    return " ".join(filter(None, [text_of(said.get("text")), picture]))
