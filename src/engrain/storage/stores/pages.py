"""Pages: how many items one may hold."""

from __future__ import annotations

from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue


def check_page_limit(limit: int) -> None:
    """A page holds 1 to `page_items_max` items."""
    if not 1 <= limit <= limits.page_items_max:
        raise InvalidValue("limit", f"must be 1 to {limits.page_items_max:,}")
