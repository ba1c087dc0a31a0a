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
_ONE_ROW = re.compile(r"(INSERT\b.*\bVALUES\s*)(\(.*\))", re.DOTALL)


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


class ManyRows:
    """An `INSERT` of one row, made to insert several at once."""

    def __init__(self, insert: str, row: str) -> None:
        names = _PARAMETER.findall(row)
        self._insert = insert.replace("%", "%%")
        self._row = _PARAMETER.sub("%s", row.replace("%", "%%"))
        self.parameter_count = len(names)
        self.in_order: Callable[[Mapping[str, Any]], tuple[Any, ...]] = itemgetter(*names)

    def statement(self, count: int) -> str:
        """With `%s` for the values of `count` rows, one row after the other."""
        return self._insert + ", ".join([self._row] * count)


def find_many_rows(statement: str) -> ManyRows | None:
    """None for a statement that ends in anything but one row of `VALUES`."""
    found = _ONE_ROW.fullmatch(statement)
    return ManyRows(*found.groups()) if found else None
