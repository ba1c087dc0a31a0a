"""Episodes: bounded pieces of what happened, each with its source, and how they are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from engrain.contracts.ids import EpisodeId, SessionId
from engrain.contracts.scope import Scope, Sensitivity


class NewEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """An episode to append. Its id follows from its coordinates: session, sequences, ordinal.

    `occurred_from`/`occurred_to` bound when it happened (None when the source does not say);
    `speaker` names who spoke. Both give context to search.
    """

    text: str
    first_sequence: int
    last_sequence: int
    ordinal: int = 0
    occurred_from: int | None = None
    occurred_to: int | None = None
    speaker: str | None = None
    importance: float = 0.5
    origin: str = "host"
    sensitivity: Sensitivity = Sensitivity.INTERNAL
    labels: tuple[str, ...] = ()


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """A stored episode. `number` counts from 1 in its session; neighbours differ by one."""

    id: EpisodeId
    session_id: SessionId
    number: int
    text: str
    first_sequence: int
    last_sequence: int
    ordinal: int
    occurred_from: int | None
    occurred_to: int | None
    recorded_at: int
    speaker: str | None
    importance: float
    origin: str
    sensitivity: Sensitivity
    labels: tuple[str, ...]
    tokens: int
    """Estimated tokens of `text`, stored when it was written."""


class EpisodePage(msgspec.Struct, frozen=True):
    """A page of episodes; `next` is the sealed cursor of the page after it."""

    items: tuple[Episode, ...]
    next: str | None


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One search result: the newest live twin, every live source of its words, and why."""

    episode: Episode
    score: float
    sources: tuple[EpisodeId, ...]
    reasons: tuple[str, ...]


class EpisodeReceipt(msgspec.Struct, frozen=True):
    """How many of the offered episodes were new, were known, or are forgotten for ever."""

    ids: tuple[EpisodeId, ...]
    written: int
    known: int
    tombstoned: int


class EpisodeStore(Protocol):
    """Durable episodes and their search terms, one scope at a time."""

    def append(
        self,
        scope: Scope,
        session_id: SessionId,
        episodes: Sequence[NewEpisode],
        *,
        extracted_through: int | None = None,
    ) -> EpisodeReceipt:
        """All or none; the same coordinates twice are one row.

        `extracted_through` moves the session's extraction watermark in the same transaction.
        """
        ...

    def read_watermark(self, scope: Scope, session_id: SessionId) -> int: ...

    def read(self, scope: Scope, episode_id: EpisodeId) -> Episode: ...

    def list(
        self,
        scope: Scope,
        *,
        session_id: SessionId | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> EpisodePage: ...

    def search(
        self, scope: Scope, query: str, *, limit: int = 20, with_neighbours: bool = False
    ) -> tuple[Hit, ...]:
        """Best first; any text is a valid query, none is a syntax error.

        A hit holds a term of the query; with `with_neighbours` it may also stand beside one that
        does, as an answer beside its question, and says `neighbour` as its reason.
        """
        ...

    def tombstone(self, scope: Scope, episode_ids: Sequence[EpisodeId]) -> int:
        """Forgets them and their terms; their ids never come back."""
        ...

    def settle(self, scope: Scope) -> int:
        """Moves up to `settle_episodes_max` forward rows into postings; how many it moved."""
        ...

    def unsettled(self, scope: Scope) -> int: ...
