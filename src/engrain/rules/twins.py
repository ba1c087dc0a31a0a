"""Twins: which texts say the same thing in the same words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Final

from engrain.rules.terms import terms

NEAR_DUPLICATE: Final = 0.9
_UNSEEN: Final = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff]+")
_HAS_DIGIT: Final = re.compile(r"\d").search
_EDGE: Final = ".,;:!…。、\"'`´“”„«»‹›「」『』()[]{}*_~–—"
_APOSTROPHES: Final = str.maketrans(dict.fromkeys("‘’‚ʼ", "'"))


def twin_text(text: str, speaker: str | None = None) -> str:
    """The normal form that near-identical texts of one speaker share.

    Case, white space, typographic variants and punctuation around words make no difference.
    Accents, digits, signs and question marks do: they change what is said. A text of punctuation
    alone stands for itself. The same words of two named persons are two things that were said.
    """
    said = _normal(text)
    return f"{_normal(speaker)}\n{said}" if speaker else said


def _normal(text: str) -> str:
    words = _plain(text).split()
    bare = [word.strip(_EDGE) for word in words]
    return " ".join(word for word in bare if word.strip("-")) or " ".join(words)


def _plain(text: str) -> str:
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text).casefold().translate(_APOSTROPHES)
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", plain))


class Wording:
    """Who spoke, and the terms in their order, to tell whether another says nearly the same."""

    __slots__ = ("_ordered", "_speaker", "_terms")

    def __init__(self, text: str, speaker: str | None = None) -> None:
        self._speaker = _normal(speaker or "")
        self._ordered = terms(text)
        self._terms = frozenset(self._ordered)

    def is_near(self, other: Wording) -> bool:
        """True when both have nearly all terms, nearly all neighbours and every number in common.

        The same words in another order, about another number or of another named person say
        something else.
        """
        if self._speaker != other._speaker and self._speaker and other._speaker:
            return False
        mine, others = self._terms, other._terms
        if similarity(mine, others) < NEAR_DUPLICATE or any(map(_HAS_DIGIT, mine ^ others)):
            return False
        return similarity(self._pairs(), other._pairs()) >= NEAR_DUPLICATE

    def _pairs(self) -> frozenset[tuple[str, str]]:
        return frozenset(pairwise(("", *self._ordered)))


def similarity(one: AbstractSet[object], other: AbstractSet[object]) -> float:
    """The share of their terms that two texts have in common (Jaccard), 0 without any term."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0
