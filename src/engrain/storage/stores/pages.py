"""Pages: how many items one may hold."""

from __future__ import annotations

from engrain.contracts import limits
from engrain.contracts.arguments import require_whole


def check_page_limit(limit: int) -> None:
    """A page holds 1 to `page_items_max` items."""
    require_whole(limit, "limit", least=1, most=limits.page_items_max)
