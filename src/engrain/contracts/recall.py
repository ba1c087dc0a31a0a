"""What recall hands over: a framed block under one exact budget, with reasons and omissions."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from engrain.contracts.episodes import Episode
from engrain.contracts.ids import EpisodeId

TokenCounter = Callable[[str], int]
"""Counts the tokens of a text as the caller's model would."""


class RecallItem(msgspec.Struct, frozen=True, kw_only=True):
    """One recalled episode: why it is here, what it cost, and every source of its words."""

    episode: Episode
    score: float
    tokens: int
    reasons: tuple[str, ...]
    sources: tuple[EpisodeId, ...]


class Omission(msgspec.Struct, frozen=True):
    """How many candidates were left out, and why (`budget`, `session_share`, `near_duplicate`)."""

    reason: str
    count: int


class RecallBlock(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is framed as data and costs `tokens` <= `budget_tokens`; empty when nothing fits."""

    text: str
    items: tuple[RecallItem, ...]
    tokens: int
    budget_tokens: int
    left_out: tuple[Omission, ...]


class FramedItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item inside a frame, as a reader of the block would parse it back."""

    heading: str
    text: str
