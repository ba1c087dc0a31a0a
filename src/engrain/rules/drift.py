"""What differs between the snapshot of a session and the one that a resume offers, to be read.

Values are shown only where they are short names or numbers: a configuration may hold a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from engrain.contracts.snapshots import SessionSnapshot

_SHOWN_MAX: Final = 20
_NAME: Final = re.compile(r"[\w.:@/+-]{1,64}")


def describe_drift(bound: SessionSnapshot, offered: SessionSnapshot) -> tuple[str, ...]:
    """One line a difference, the first twenty, and how many more; empty when there is none."""
    lines = [
        *_differences("configuration", bound.configuration, offered.configuration),
        *_differences("tool", _by_name(bound), _by_name(offered)),
    ]
    more = len(lines) - _SHOWN_MAX
    return tuple(lines[:_SHOWN_MAX]) + ((f"and {more} more",) if more > 0 else ())


def _by_name(snapshot: SessionSnapshot) -> dict[str, Any]:
    tools = {tool.name: msgspec.to_builtins(tool) for tool in snapshot.tools}
    for tool in tools.values():
        del tool["name"]
    return tools


def _differences(path: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _difference_at(f"{path}.{key}", key, old, new)
    elif type(old) is not type(new) or old != new:
        yield f"{path}: was {_shown(old)}, now {_shown(new)}"


def _difference_at(path: str, key: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    if key not in new:
        yield f"{path}: is no longer there"
    elif key not in old:
        yield f"{path}: is new"
    else:
        yield from _differences(path, old[key], new[key])


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, str):
        return value if _NAME.fullmatch(value) else f"a text of {len(value):,} characters"
    return f"a list of {len(value):,}" if isinstance(value, list | tuple) else "an object"
