"""Named fault points: places where tests may stop the process. They cost nothing in production."""

from __future__ import annotations

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Marks that the named point was reached."""
    if _hook is not None:
        _hook(name)


def arm(hook: Callable[[str], None] | None) -> None:
    """Calls `hook` at every point from now on; None disarms. For tests alone."""
    global _hook
    _hook = hook
