"""Enrichment: sessions become episodes. Without a model, word for word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from engrain.contracts import limits
from engrain.contracts.episodes import EpisodeStore, NewEpisode
from engrain.contracts.events import StoredEvent
from engrain.contracts.ids import SessionId
from engrain.contracts.scope import Scope
from engrain.contracts.transcript import TranscriptStore
from engrain.rules.extraction import verbatim_episodes

_EVENTS_A_PAGE = 256
_TEXT_A_PAGE = 2 * limits.MIB


class ExtractionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an extraction did: events read past the watermark, episodes written, known, refused."""

    events_read: int
    written: int
    known: int
    tombstoned: int


class Enrichment:
    """`memory.enrichment`: extraction, and the settling of what it indexed."""

    def __init__(self, transcript: TranscriptStore, episodes: EpisodeStore) -> None:
        self._transcript = transcript
        self._episodes = episodes

    def extract(self, scope: Scope, session_id: SessionId) -> ExtractionReport:
        """Episodes of every event that was not extracted yet; doing it twice changes nothing."""
        read = written = known = tombstoned = 0
        after = self._episodes.read_watermark(scope, session_id)
        events = self._transcript.iter_events(scope, session_id, after=after)
        for page in _pages(events):
            read += len(page)
            parts = _parts(list(verbatim_episodes(page)))
            for at, part in enumerate(parts, 1):
                through = page[-1].sequence if at == len(parts) else None
                receipt = self._episodes.append(scope, session_id, part, extracted_through=through)
                written += receipt.written
                known += receipt.known
                tombstoned += receipt.tombstoned
        self.settle(scope)  # also what an extraction that was killed left behind
        return ExtractionReport(
            events_read=read, written=written, known=known, tombstoned=tombstoned
        )

    def settle(self, scope: Scope) -> int:
        """Settles full batches of forward rows, so that searches read few unsettled ones."""
        settled = 0
        while self._episodes.unsettled(scope) >= limits.settle_episodes_max:
            settled += self._episodes.settle(scope)
        return settled


def _pages(events: Iterable[StoredEvent]) -> Iterator[list[StoredEvent]]:
    """At most `_EVENTS_A_PAGE` at a time, fewer where they are large."""
    page: list[StoredEvent] = []
    size = 0
    for stored in events:
        page.append(stored)
        size += len(stored.event.text)
        if len(page) == _EVENTS_A_PAGE or size >= _TEXT_A_PAGE:
            yield page
            page, size = [], 0
    if page:
        yield page


def _parts(found: list[NewEpisode]) -> list[list[NewEpisode]]:
    """At most `episode_append_max` at a time; one empty part when there is nothing."""
    size = limits.episode_append_max
    return [found[at : at + size] for at in range(0, len(found), size)] or [[]]
