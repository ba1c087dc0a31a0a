"""The text rule: stored text is valid Unicode scalar values without NUL, on every engine.

A caller's text that breaks the rule is refused; a tool's, a model's or a file's is repaired once,
at the edge, before anything is hashed.
"""

from __future__ import annotations

from engrain.contracts.errors import InvalidValue, LimitExceeded

REPLACEMENT = "�"


def is_clean_text(text: str) -> bool:
    """True when `text` holds neither NUL nor a lone surrogate."""
    if not text.isascii():
        try:
            text.encode()  # UTF-8 refuses surrogates and nothing else
        except UnicodeEncodeError:
            return False
    return "\0" not in text


def require_text(text: str, field: str) -> str:
    """`text` itself; raises `InvalidValue` when it breaks the text rule (INV-05)."""
    if not isinstance(text, str):
        raise InvalidValue(field, "must be text")
    if not is_clean_text(text):
        raise InvalidValue(field, "holds NUL or a lone surrogate")
    return text


def require_short_text(text: str, field: str, bytes_max: int) -> str:
    """Clean text of 1 to `bytes_max` UTF-8 bytes that is not blank."""
    require_text(text, field)
    if not text.strip():
        raise InvalidValue(field, "must not be empty or blank")
    size = len(text.encode())
    if size > bytes_max:
        raise LimitExceeded(f"{field}_bytes_max", bytes_max, size)
    return text


def repair_text(text: str) -> tuple[str, bool]:
    """Clean text and whether it had to be repaired: each bad code point becomes U+FFFD.

    Surrogate pairs that stand for one character are joined, not replaced.
    """
    if is_clean_text(text):
        return text, False
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\0", REPLACEMENT), True


def cut_text(text: str, bytes_max: int) -> str:
    """The longest prefix of at most `bytes_max` UTF-8 bytes; a code point is never split."""
    if len(text) * 4 <= bytes_max:
        return text
    return text.encode()[:bytes_max].decode(errors="ignore")
