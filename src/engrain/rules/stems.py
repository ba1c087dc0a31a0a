"""Stems of English and Portuguese words, by truncation only.

What a stemmer rewrites (study, studies: studi) is cut back to what word and stem have in common, so
a stem is a piece of the text that it came from. Both languages' rules apply to every word, whatever
the language of its sentence, so that a word has one stem in texts and queries alike.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, Final

_WORD_MIN: Final = 4
_STEM_MIN: Final = 3
_SOFT_ENDS: Final = "eiy"
_NASAL_ENDS: Final = ("oes", "ao")
# Endings whose accents folding took; the Portuguese rules know them with their accents only.
_ACCENTED_ENDS: Final = {
    "encia": "ência",
    "encias": "ências",
    "ancia": "ância",
    "ancias": "âncias",
    "avel": "ável",
    "aveis": "áveis",
    "ivel": "ível",
    "iveis": "íveis",
}
_SPECIAL_ENDS: Final = (*_NASAL_ENDS, *_ACCENTED_ENDS)
_LOCK: Final = threading.Lock()


def cut(word: str) -> str:
    """The stem of a folded word: a prefix of it, the same wherever the word stands."""
    if len(word) < _WORD_MIN or not (word.isascii() and word.isalpha()):
        return word
    english = _shared(word, _stem("english", word))
    stem = min(english, _portuguese(english), key=len)
    if english != word:
        stem = min(stem, _portuguese(word), key=len)
    if len(stem) > _STEM_MIN and stem[-1] in _SOFT_ENDS:
        stem = stem[:-1]
    return stem if len(stem) >= _STEM_MIN else word


def _portuguese(word: str) -> str:
    accented = word
    if word.endswith(_SPECIAL_ENDS):
        for end in _NASAL_ENDS:  # avião, aviões
            if word.endswith(end):
                return _long_enough(word.removesuffix(end), word)
        for end, written in _ACCENTED_ENDS.items():
            if word.endswith(end):
                accented = word.removesuffix(end) + written
    return _long_enough(_shared(accented, _stem("portuguese", accented)), word)


def _long_enough(stem: str, word: str) -> str:
    return word[: len(stem)] if len(stem) >= _STEM_MIN else word


def _shared(word: str, rewritten: str) -> str:
    """The beginning that both have in common."""
    if word.startswith(rewritten):
        return rewritten
    for at, (one, other) in enumerate(zip(word, rewritten, strict=False)):
        if one != other:
            return word[:at]
    return word[: len(rewritten)]


def _stem(language: str, word: str) -> str:
    with _LOCK:  # a stemmer serves one caller at a time
        return str(_stemmer(language).stemWord(word))


@cache
def _stemmer(language: str) -> Any:
    import Stemmer  # loaded when the first word is cut, not when engrain is imported

    return Stemmer.Stemmer(language, 0)  # without a cache of its own: each word comes once
