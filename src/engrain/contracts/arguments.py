"""What callers give in place of what was asked for: refused by its kind, before it is used."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue


def require_whole(
    value: int, field: str, *, least: int = 0, most: int = limits.json_integer_max
) -> int:
    """`value` itself; raises `InvalidValue` for what is no whole number from `least` to `most`.

    A fraction is none, nor is a truth value, nor digits in a text.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:
        raise InvalidValue(field, f"must be a whole number from {least:,} to {most:,}")
    return value


def require_sequence(value: object, field: str, of: str) -> None:
    """Raises `InvalidValue` unless it is a list, a tuple or the like; a text is none."""
    if type(value) is tuple or type(value) is list:  # nearly always, and asked for every turn
        return
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidValue(field, f"must be a sequence of {of}")
