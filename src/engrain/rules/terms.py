"""Search terms: what a text can be found by. Owns how text is cut, not what a term weighs.

Every term is a substring of the folded text (INV-18): a word cut to its stem, two neighbouring
characters of a script that is written without spaces, a whole identifier, date or address, or an
emoji.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from functools import lru_cache
from itertools import chain
from typing import Final

from engrain.contracts import limits
from engrain.rules.folding import fold
from engrain.rules.stems import cut
from engrain.rules.stopwords import STOPWORDS

TERM_CHARACTERS_MAX: Final = 64
_CACHED_TOKENS_MAX: Final = 65_536
_CACHED_CHARACTERS_MAX: Final = 32

_HAN: Final = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Han, Thai, Lao, Burmese, Hangul, Khmer, kana.
_SPACELESS: Final = (
    f"{_HAN}\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1050-\u109f\u1100-\u11ff"
    "\u1780-\u17d3\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3130-\u318f"
    "\u31f0-\u31ff\ua960-\ua97f\uac00-\ud7ff"
)
# Marks that \w leaves out; without them a word of Hindi or Arabic falls apart.
_MARKS: Final = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u0900-\u0963\u0971-\u0dff\u0f18-\u0f3f\u0f71-\u0fbc"
)
# Without the skin tones, which vary an emoji and make no other one.
_EMOJI: Final = (
    "\u00a9\u00ae\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf\u23e9-\u23fa\u25aa\u25ab\u25b6\u25c0"
    "\u25fb-\u25fe\u2600-\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
)
_FLAG: Final = "[\U0001f1e6-\U0001f1ff]{1,2}"


def _token_pattern(letters: str) -> str:
    """Words, joined where no space stands between them; C++ and C# are words."""
    return rf"{letters}(?:(?:::|[-.@:/'+]){letters})*(?:\+\+|#)?"


_ASCII_TOKENS: Final = re.compile(_token_pattern("[a-z0-9_]+"))
_TOKENS: Final = re.compile(
    rf"[{_SPACELESS}]+|"
    + _token_pattern(rf"(?:[^\W{_SPACELESS}]|[{_MARKS}])+")
    + rf"|[{_EMOJI}]|{_FLAG}"
)
_IS_SPACELESS: Final = re.compile(f"[{_SPACELESS}]").match
_IS_HAN: Final = re.compile(f"[{_HAN}]").match
_JOINTS: Final = re.compile(r"[-.@:/'+#_]+")
_MAKES_AN_IDENTIFIER: Final = re.compile(r"[\d.@:+#_]").search
_CLITIC: Final = re.compile(r"'(?:s|re|ve|ll|d|m)$")
_HAS_HUMP: Final = re.compile(r"[a-z][A-Z]").search
_HUMPED: Final = re.compile(r"[A-Za-z]*[a-z][A-Z][A-Za-z]*")
_HUMP: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

_EPOCH: Final = date(1970, 1, 1)
_MONTHS: Final = (
    ("January", "janeiro"),
    ("February", "fevereiro"),
    ("March", "março"),
    ("April", "abril"),
    ("May", "maio"),
    ("June", "junho"),
    ("July", "julho"),
    ("August", "agosto"),
    ("September", "setembro"),
    ("October", "outubro"),
    ("November", "novembro"),
    ("December", "dezembro"),
)


def terms(text: str) -> list[str]:
    """The terms of a text, each as often as it occurs; any text has terms or none."""
    folded = fold(text)
    tokens = (_ASCII_TOKENS if folded.isascii() else _TOKENS).findall(folded)
    found = list(chain.from_iterable([_TERMS_OF[token] for token in tokens]))
    if _HAS_HUMP(text):
        found += _hump_terms(text)
    return found


def query_terms(text: str) -> list[str]:
    """At most `query_terms_max` distinct terms that say what a query is about, in its order.

    Function words count only where there is nothing else. Of a long turn the beginning and the
    end are taken.
    """
    distinct = dict.fromkeys(terms(text))
    chosen = [term for term in distinct if term not in STOPWORDS] or list(distinct)
    half = limits.query_terms_max // 2
    return chosen if len(chosen) <= 2 * half else chosen[:half] + chosen[-half:]


def episode_terms(text: str, *, speaker: str | None, occurred_from: int | None) -> list[str]:
    """The terms of what was said, of who said it, and of the day (UTC) on which it happened."""
    found = terms(text)
    if speaker:
        found += terms(speaker)
    if occurred_from is not None:
        found += _date_terms(occurred_from // limits.DAY_US)
    return found


@lru_cache(maxsize=4_096)
def _date_terms(day: int) -> list[str]:
    """2023-05-08, 2023, 8, May and maio; nothing outside the years 1 to 9999."""
    try:
        when = _EPOCH + timedelta(days=day)
    except OverflowError:
        return []
    english, portuguese = _MONTHS[when.month - 1]
    return [when.isoformat(), *terms(f"{when.year:04} {when.day} {english} {portuguese}")]


def _hump_terms(text: str) -> list[str]:
    """camelCase names as a whole, and the words inside, which folding would hide."""
    names = _HUMPED.findall(text)
    words = [cut(word.lower()) for name in names for word in _HUMP.findall(name)]
    return [one[:TERM_CHARACTERS_MAX] for one in (*map(str.lower, names), *words)]


class _TermsOfTokens(dict[str, tuple[str, ...]]):
    """Cuts each token once; bounded, and emptied when full."""

    def __missing__(self, token: str) -> tuple[str, ...]:
        found = tuple(_cut_token(token))
        if len(token) <= _CACHED_CHARACTERS_MAX:
            if len(self) >= _CACHED_TOKENS_MAX:
                self.clear()
            self[token] = found
        return found


_TERMS_OF: Final = _TermsOfTokens()


def _cut_token(token: str) -> list[str]:
    if _IS_SPACELESS(token):
        return _character_terms(token)
    if token.endswith("n't"):
        return [token[-TERM_CHARACTERS_MAX:]]
    token = _CLITIC.sub("", token)
    parts = [part[:TERM_CHARACTERS_MAX] for part in _JOINTS.split(token) if part]
    found = [part if part in STOPWORDS else cut(part) for part in parts]
    if found == [token] or not _MAKES_AN_IDENTIFIER(token) or len(token) > TERM_CHARACTERS_MAX:
        return found
    return found if token in found else [token, *found]


def _character_terms(run: str) -> list[str]:
    """Pairs of neighbouring characters; a Han character is a word of its own as well."""
    alone = list(run) if len(run) == 1 else [one for one in run if _IS_HAN(one)]
    return alone + [run[at : at + 2] for at in range(len(run) - 1)]
