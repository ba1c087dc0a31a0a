"""Named SQL: `sql/<noun>.sql` holds statements under `-- name:` lines, one noun a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from operator import itemgetter
from typing import Any

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


def split_queries(noun: str, text: str) -> dict[str, str]:
    """`noun.name` → statement, for every `-- name:` in `text`."""
    parts = _NAME.split(text)[1:]
    return {
        f"{noun}.{name}": body.strip().rstrip(";")
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


@cache
def load_queries(package: str) -> dict[str, str]:
    """Every query of an engine's package."""
    found: dict[str, str] = {}
    for file in sorted((resources.files(package) / "sql").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sql"):
            found |= split_queries(file.name.removesuffix(".sql"), file.read_text("utf-8"))
    return found


def parameters_of(statement: str) -> frozenset[str]:
    """The names of a statement's parameters."""
    return frozenset(_PARAMETER.findall(statement))


def with_pyformat(statement: str) -> str:
    """The statement with `%(name)s` instead of `:name`."""
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))


def with_numbers(
    statement: str,
) -> tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
    """The statement with `?1` instead of `:name`, and what puts its parameters in that order.

    SQLite looks a name up at every use of it; a number costs nothing.
    """
    names = list(dict.fromkeys(_PARAMETER.findall(statement)))
    numbered = _PARAMETER.sub(lambda found: f"?{names.index(found[1]) + 1}", statement)
    if len(names) > 1:
        return numbered, itemgetter(*names)
    return numbered, lambda parameters: tuple(parameters[name] for name in names)
