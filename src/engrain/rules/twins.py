"""Twins: which texts say the same thing in the same words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set as AbstractSet
from typing import Final

_UNSEEN: Final = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff]+")
_EDGE: Final = ".,;:!…。、\"'`´“”„«»‹›「」『』()[]{}*_~–—"
_APOSTROPHES: Final = str.maketrans(dict.fromkeys("‘’‚ʼ", "'"))


def twin_text(text: str) -> str:
    """The normal form that near-identical texts share.

    Case, white space, typographic variants and punctuation around words make no difference.
    Accents, digits, signs and question marks do: they change what is said. A text of punctuation
    alone stands for itself.
    """
    words = (text.lower() if text.isascii() else _plain(text)).split()
    bare = [word.strip(_EDGE) for word in words]
    return " ".join(word for word in bare if word.strip("-")) or " ".join(words)


def _plain(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text).casefold().translate(_APOSTROPHES)
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", plain))


def similarity(one: AbstractSet[str], other: AbstractSet[str]) -> float:
    """The share of their terms that two texts have in common (Jaccard), 0 without any term."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0
