"""Stems of English and Portuguese words, by truncation only.

What a stemmer rewrites (study, studies: studi) is cut back to what the word and its stem have in
common, so that a stem is always a piece of the text it came from. Not for other languages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Final

_WORD_MIN: Final = 4
_STEM_MIN: Final = 3
_SOFT_ENDS: Final = "eiy"

_LOCK: Final = threading.Lock()


def cut(word: str) -> str:
    """The stem of a folded word: a prefix of it, the same in every text."""
    if len(word) < _WORD_MIN or not word.isalpha() or not word.isascii():
        return word
    with _LOCK:  # a stemmer serves one caller at a time
        rewritten = _english()(word)
    stem = _common_start(word, rewritten)
    if len(stem) > _STEM_MIN and stem[-1] in _SOFT_ENDS:
        stem = stem[:-1]
    return stem if len(stem) >= _STEM_MIN else word


def _common_start(word: str, rewritten: str) -> str:
    for at, (one, other) in enumerate(zip(word, rewritten, strict=False)):
        if one != other:
            return word[:at]
    return word[: len(rewritten)]


@cache
def _english() -> Callable[[str], str]:
    import Stemmer  # loaded when the first word is cut, not when engrain is imported

    stem: Callable[[str], str] = Stemmer.Stemmer("english").stemWord
    return stem
