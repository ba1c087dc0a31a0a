"""Folding: what is the same word to a reader becomes the same characters.

Compatibility forms (NFKC), case, the accents of Latin letters, curly apostrophes, and characters
that cannot be seen. Marks of other scripts stay, since there they tell words apart.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_LATIN_MARKS: Final = re.compile("(?<=[a-z])[\u0300-\u036f]+")
_UNSEEN: Final = (0xAD, *range(0x200C, 0x2010), 0x2060, 0xFEFF, *range(0xFE00, 0xFE10))
_REPLACED: Final = str.maketrans(
    {
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ħ": "h",
        "ŧ": "t",
        "ı": "i",
        "æ": "ae",
        "œ": "oe",
        "ð": "d",
        "þ": "th",
        **dict.fromkeys("‘’ʼ", "'"),
        **dict.fromkeys(_UNSEEN),
    }
)


def fold(text: str) -> str:
    """The text as search compares it; what Unicode holds for equal folds alike."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text).casefold()
    bare = unicodedata.normalize("NFKD", plain).translate(_REPLACED)
    return unicodedata.normalize("NFKC", _LATIN_MARKS.sub("", bare))
