"""The named SQL of both engines, side by side: what one offers the other offers in the same shape.

Every statement is prepared on a migrated database of its engine, so what is compared is what the
engines themselves say: names, parameters, and the names and types of result columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import apsw.ext
import msgspec
import psycopg
import pytest

from engrain import storage
from engrain.storage.postgres import database as postgres
from engrain.storage.postgres.open import open_url
from engrain.storage.queries import load_queries, parameters_of
from engrain.storage.sqlite.open import open_memory
from engrain.system.clock import SystemClock

PACKAGES = ("engrain.storage.sqlite", "engrain.storage.postgres")
STORES = Path(storage.__file__).parent / "stores"
SQLITE_TYPES = {"INTEGER": "integer", "TEXT": "text", "BLOB": "bytes", "REAL": "real"}
POSTGRES_TYPES = {20: "integer", 25: "text", 17: "bytes", 701: "real"}


class Shape(msgspec.Struct, frozen=True):
    """What a store sees of a query. A column's type is None where the engine does not say."""

    parameters: frozenset[str]
    columns: tuple[tuple[str, str | None], ...]


Shapes = Mapping[str, Shape]


def differences(one: Shapes, other: Shapes) -> list[str]:
    """One line for each way in which two engines' queries are not the same."""
    found = [f"{name}: only on one engine" for name in sorted(one.keys() ^ other.keys())]
    for name in sorted(one.keys() & other.keys()):
        mine, theirs = one[name], other[name]
        if mine.parameters != theirs.parameters:
            found.append(f"{name}: parameters {sorted(mine.parameters ^ theirs.parameters)}")
        if [column for column, _ in mine.columns] != [column for column, _ in theirs.columns]:
            found.append(f"{name}: columns")
            continue
        for (column, kind), (_, other_kind) in zip(mine.columns, theirs.columns, strict=True):
            if None not in (kind, other_kind) and kind != other_kind:
                found.append(f"{name}: {column} is {kind} here and {other_kind} there")
    return found


def sqlite_shapes() -> dict[str, Shape]:
    database = open_memory(SystemClock())
    try:
        return {
            name: _sqlite_shape(database._writer, statement)
            for name, statement in load_queries(PACKAGES[0]).items()
        }
    finally:
        database.close()


def _sqlite_shape(connection: Any, statement: str) -> Shape:
    details = apsw.ext.query_info(connection, statement)
    assert details.query_remaining is None, "one statement a name"
    columns = tuple(
        (name, SQLITE_TYPES[kind] if kind else None) for name, kind in details.description
    )
    return Shape(frozenset(details.bindings_names), columns)


def postgres_shapes(url: str) -> dict[str, Shape]:
    open_url(url).close()
    with psycopg.connect(url, **postgres.connection_settings()) as connection:
        return {
            name: _postgres_shape(connection.pgconn, name, statement)
            for name, statement in load_queries(PACKAGES[1]).items()
        }


def _postgres_shape(connection: Any, name: str, statement: str) -> Shape:
    parameters = sorted(parameters_of(statement))
    numbered = re.sub(
        r"(?<![:\w]):([a-z_]+)", lambda m: f"${parameters.index(m[1]) + 1}", statement
    )
    prepared = connection.prepare(name.encode(), numbered.encode())
    assert prepared.status == psycopg.pq.ExecStatus.COMMAND_OK, (name, prepared.error_message)
    described = connection.describe_prepared(name.encode())
    columns = tuple(
        (described.fname(at).decode(), POSTGRES_TYPES.get(described.ftype(at), "no such type"))
        for at in range(described.nfields)
    )
    assert described.nparams == len(parameters)
    return Shape(frozenset(parameters), columns)


@pytest.fixture(scope="module")
def sqlite() -> dict[str, Shape]:
    return sqlite_shapes()


@pytest.fixture
def both(sqlite: dict[str, Shape], fresh_postgres_url: str) -> Iterator[tuple[Shapes, Shapes]]:
    yield sqlite, postgres_shapes(fresh_postgres_url)


def test_both_engines_offer_the_same_queries_in_the_same_shape(both: tuple[Shapes, Shapes]) -> None:
    assert differences(*both) == []


def test_each_noun_has_its_file_on_both_engines() -> None:
    files = [
        sorted(file.name for file in (resources.files(package) / "sql").iterdir())
        for package in PACKAGES
    ]
    assert files[0] == files[1]
    nouns = [name.removesuffix(".sql") for name in files[0]]
    without_a_store = {noun for noun in nouns if not (STORES / f"{noun}.py").exists()}
    assert without_a_store == {"tombstones"}, "tombstones are written by the stores of what died"


def test_no_file_names_a_query_twice() -> None:
    for package in PACKAGES:
        for file in (resources.files(package) / "sql").iterdir():
            names = re.findall(r"^-- name: (.*)$", file.read_text("utf-8"), re.MULTILINE)
            assert len(names) == len(set(names)), f"{package} {file.name}"
            assert all(re.fullmatch("[a-z_]+", name) for name in names), "a name that is not read"


def test_a_store_asks_only_for_queries_that_exist(sqlite: Shapes) -> None:
    nouns = "|".join({name.split(".")[0] for name in sqlite})
    asked = set()
    for file in (*STORES.glob("*.py"), *STORES.parent.glob("*/database.py")):
        asked |= set(re.findall(rf'"((?:{nouns})\.[a-z_]+)"', file.read_text("utf-8")))
    assert len(asked) > 50
    assert asked <= sqlite.keys()


def _without_a_parameter(shape: Shape) -> Shape:
    return Shape(frozenset(sorted(shape.parameters)[1:]), shape.columns)


def _with_another_type(shape: Shape) -> Shape:
    (name, _), *rest = shape.columns
    return Shape(shape.parameters, ((name, "text"), *rest))


def _with_columns_swapped(shape: Shape) -> Shape:
    first, second, *rest = shape.columns
    return Shape(shape.parameters, (second, first, *rest))


def _with_a_column_renamed(shape: Shape) -> Shape:
    (_, kind), *rest = shape.columns
    return Shape(shape.parameters, (("renamed", kind), *rest))


@pytest.mark.parametrize(
    "plant",
    [_without_a_parameter, _with_another_type, _with_columns_swapped, _with_a_column_renamed],
)
def test_a_planted_fault_is_caught(sqlite: dict[str, Shape], plant: Any) -> None:
    planted = sqlite | {"episodes.read": plant(sqlite["episodes.read"])}
    assert len(differences(sqlite, planted)) == 1


def test_a_missing_query_is_caught(sqlite: dict[str, Shape]) -> None:
    less = {name: shape for name, shape in sqlite.items() if name != "leases.grant"}
    assert differences(sqlite, less) == ["leases.grant: only on one engine"]
    assert differences(less, sqlite) == ["leases.grant: only on one engine"]
