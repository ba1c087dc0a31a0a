"""The verbatim extractor: what was said becomes episodes, without a model and without loss.

Each message of a user or an assistant becomes one episode, or several where it is long. Recall
events, tool traffic, system text and audit are left out, so nothing that memory itself said is
learned again (INV-24).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from engrain.contracts import limits
from engrain.contracts.episodes import NewEpisode
from engrain.contracts.events import AssistantMessage, StoredEvent, UserMessage
from engrain.contracts.scope import Origin
from engrain.contracts.text import cut_text

PIECE_BYTES_MAX: Final = 2_048
_BREAKS: Final = (re.compile(r"\n\s*\n"), re.compile(r"(?<=[.!?。！？])\s*|\n"), re.compile(r"\s"))
_IMPORTANCE: Final = 0.5


def verbatim_episodes(events: Iterable[StoredEvent]) -> Iterator[NewEpisode]:
    """The episodes of these events; the same events give the same coordinates."""
    for stored in events:
        event = stored.event
        if not isinstance(event, UserMessage | AssistantMessage):
            continue
        occurred = event.occurred_at
        if occurred is None and not event.origin.startswith("import:"):
            occurred = stored.recorded_at  # it was said when it was recorded
        for ordinal, piece in enumerate(split_text(event.text)):
            yield NewEpisode(
                text=piece,
                first_sequence=stored.sequence,
                last_sequence=stored.sequence,
                ordinal=ordinal,
                occurred_from=occurred,
                occurred_to=occurred,
                speaker=_name_of(event.speaker),
                importance=_IMPORTANCE,
                origin=Origin(event.origin),
            )


def _name_of(speaker: str | None) -> str | None:
    """The speaker inside the bounds of an episode: an event says it freely, and may leave it blank.

    What one event says must not keep the rest of its session from being remembered.
    """
    return cut_text((speaker or "").strip(), limits.title_bytes_max).strip() or None


def split_text(text: str, bytes_max: int = PIECE_BYTES_MAX) -> list[str]:
    """Pieces of at most `bytes_max` UTF-8 bytes, cut between paragraphs, sentences or words."""
    pieces: list[str] = []
    rest = text.strip()
    while rest:
        end = _fitting(rest, bytes_max)
        if end < len(rest):
            end = _last_break(rest[:end]) or end
        if piece := rest[:end].strip():
            pieces.append(piece)
        rest = rest[end:].strip()
    return pieces


def _fitting(text: str, bytes_max: int) -> int:
    """How many leading characters take at most `bytes_max` bytes."""
    if len(text) * 4 <= bytes_max:
        return len(text)
    return len(text[:bytes_max].encode()[:bytes_max].decode(errors="ignore"))


def _last_break(window: str) -> int:
    """Where the best kind of break ends last in the second half of the window; 0 for none."""
    for pattern in _BREAKS:
        ends = [match.end() for match in pattern.finditer(window, len(window) // 2)]
        if ends and ends[-1] > 0:
            return ends[-1]
    return 0
