"""The schema pictures are current, and the two engines keep the same tables and columns."""

from __future__ import annotations

from contextlib import closing

import apsw
import psycopg
import pytest

from engrain.storage.postgres.database import SCHEMA, connection_settings
from engrain.storage.postgres.open import open_url
from engrain.storage.schema_picture import (
    DIFFERENCES,
    FOLDER,
    draw_pictures,
    draw_postgres,
    draw_sqlite,
    read_postgres_columns,
    read_sqlite_columns,
    sqlite_memory,
    undocumented,
)

UNSCOPED = {"migrations", "scopes"}
"""Tables that stand above scopes."""


def read_postgres(url: str) -> dict[str, str]:
    open_url(url).close()
    with psycopg.connect(url, **connection_settings()) as connection:
        return read_postgres_columns(connection)


def read_sqlite() -> dict[str, str]:
    with closing(sqlite_memory()) as connection:
        return read_sqlite_columns(connection)


def test_pictures_are_current(fresh_postgres_url: str) -> None:
    for path, picture in draw_pictures(fresh_postgres_url).items():
        assert path.read_text("utf-8") == picture, "run: python -m engrain.storage.schema_picture"


def test_the_sqlite_picture_makes_the_same_schema() -> None:
    with closing(sqlite_memory()) as migrated:
        columns, picture = read_sqlite_columns(migrated), draw_sqlite(migrated)
    from_picture = apsw.Connection(":memory:")
    with closing(from_picture):
        from_picture.execute((FOLDER / "sqlite/schema.sql").read_text("utf-8")).fetchall()
        assert read_sqlite_columns(from_picture) == columns
        assert draw_sqlite(from_picture) == picture


def test_the_postgres_picture_makes_the_same_schema(fresh_postgres_url: str) -> None:
    picture = (FOLDER / "postgres/schema.sql").read_text("utf-8")
    with psycopg.connect(fresh_postgres_url, **connection_settings()) as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        statements = picture.split(";\n")
        waiting = [s for s in statements if s.strip()]
        while waiting:  # a foreign key may stand before the table that it names
            left = [s for s in waiting if not _executes(connection, s)]
            assert len(left) < len(waiting), left[0]
            waiting = left
        drawn = draw_postgres(connection)
    assert drawn == picture


def _executes(connection: psycopg.Connection[tuple[object, ...]], statement: str) -> bool:
    try:
        connection.execute(statement.encode())
    except psycopg.errors.UndefinedTable:
        return False
    return True


def test_both_engines_have_the_same_columns_save_for_the_documented(
    fresh_postgres_url: str,
) -> None:
    assert undocumented(read_sqlite(), read_postgres(fresh_postgres_url)) == []


def test_every_difference_says_why() -> None:
    assert all(reason for reason in DIFFERENCES.values())


@pytest.mark.parametrize(
    ("column", "kind"),
    [("episodes.text", None), ("episodes.text", "bytes"), ("episodes.speaker", "text")],
    ids=["missing", "another type", "no longer nullable"],
)
def test_a_planted_difference_is_caught(column: str, kind: str | None) -> None:
    same = read_sqlite()
    planted = {name: it for name, it in (same | {column: kind}).items() if it is not None}
    assert set(undocumented(same, planted)) - DIFFERENCES.keys() == {column}


def test_a_documented_difference_that_is_gone_is_caught() -> None:
    same = read_sqlite()
    assert undocumented(same, same) == sorted(DIFFERENCES)


@pytest.mark.invariant("INV-20")
def test_the_scope_leads_every_key_on_postgres(fresh_postgres_url: str) -> None:
    open_url(fresh_postgres_url).close()
    with psycopg.connect(fresh_postgres_url, **connection_settings()) as connection:
        rows = connection.execute(
            "SELECT c.relname, a.attname FROM pg_index i "
            "JOIN pg_class c ON c.oid = i.indrelid "
            "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0] "
            "WHERE c.relnamespace = %s::regnamespace",
            [SCHEMA],
        ).fetchall()
    scoped = [(table, first) for table, first in rows if table not in UNSCOPED]
    assert len(scoped) > 20
    assert {first for _, first in scoped} == {"scope_key"}


@pytest.mark.invariant("INV-20")
def test_every_table_names_its_scope_on_both_engines(fresh_postgres_url: str) -> None:
    for columns in (read_sqlite(), read_postgres(fresh_postgres_url)):
        tables = {name.split(".")[0] for name in columns} - UNSCOPED
        assert len(tables) > 10
        assert {table for table in tables if f"{table}.scope_key" not in columns} == set()
