"""What the index keeps of an episode, and what a search hands to the ranking rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

EPISODE_BITS = 32


def pack_episode_key(session: int, number: int) -> int:
    """One 64-bit key whose neighbours are the session's neighbouring episodes."""
    return session << EPISODE_BITS | number


def unpack_episode_key(key: int) -> tuple[int, int]:
    """(session key, number) of an episode key."""
    return key >> EPISODE_BITS, key & ((1 << EPISODE_BITS) - 1)


class ScopeTerms(msgspec.Struct, frozen=True):
    """A scope's own statistics: live episodes and the sum of their lengths in terms."""

    episode_count: int
    total_length: int


class Postings(msgspec.Struct, frozen=True):
    """Where one term occurs in a scope: parallel sequences, unordered, no key twice.

    `counts[i]` is how often it occurs in episode `keys[i]`, `lengths[i]` that episode's length.
    """

    keys: Sequence[int]
    counts: Sequence[int]
    lengths: Sequence[int]


class Ranked(msgspec.Struct, frozen=True):
    """An episode key with its score and the query terms that it holds itself."""

    key: int
    score: float
    terms: tuple[str, ...]


TermPostings = Mapping[str, Postings]
