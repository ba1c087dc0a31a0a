"""Pictures of the schema after all migrations, drawn from a live database of each engine.

`sqlite/schema.sql` and `postgres/schema.sql` are for people: what a table looks like today without
adding up migrations. Nothing reads them. A test says when they are not current;
`python -m engrain.storage.schema_picture` draws them anew.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import apsw
import psycopg

from engrain.storage.migrate import migrate
from engrain.storage.postgres import local_server
from engrain.storage.postgres.database import SCHEMA, connection_settings
from engrain.storage.postgres.open import open_url
from engrain.storage.sqlite.files import MIGRATIONS, SqliteMigrator

FOLDER: Final = Path(__file__).parent
NOTE: Final = (
    "-- The schema after all migrations, drawn by engrain.storage.schema_picture; do not edit.\n"
)

DIFFERENCES: Final[Mapping[str, str]] = {
    "batches.batch_key": "SQLite packs session << 32 | first sequence into the rowid",
    "batches.session_key": "in the packed key on SQLite",
    "batches.first_sequence": "in the packed key on SQLite",
    "events.event_key": "SQLite packs session << 32 | sequence into the rowid",
    "events.session_key": "in the packed key on SQLite",
    "events.sequence": "in the packed key on SQLite",
    "scopes.session_count": "PostgreSQL counts sessions in their scope; SQLite's are unique in the "
    "file, which its packed rowids need",
    "migrations.applied_at": "integer microseconds on SQLite, the server's own time on PostgreSQL",
}
"""Every column, as `table.column`, that the engines do not share, and why."""

Columns = Mapping[str, str]
"""`table.column` → its type in words that both engines share, with `?` where it may be absent."""

_SQLITE_TYPES: Final = {"INTEGER": "integer", "TEXT": "text", "BLOB": "bytes", "REAL": "real"}
_POSTGRES_TYPES: Final = {
    "bigint": "integer",
    "text": "text",
    "bytea": "bytes",
    "double precision": "real",
}


def sqlite_memory() -> apsw.Connection:
    """A migrated database in memory."""
    connection = apsw.Connection(":memory:")
    migrate(SqliteMigrator(connection, 0), MIGRATIONS)
    return connection


def draw_sqlite(connection: apsw.Connection) -> str:
    """The statements that made every table and index, each table with its indexes."""
    rows = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
        "ORDER BY tbl_name, type DESC, name"
    )
    return NOTE + "".join(f"\n{_without_comments(sql)};\n" for (sql,) in rows)


def _without_comments(sql: str) -> str:
    return re.sub(r"^\s*--.*\n", "", sql, flags=re.MULTILINE)


def read_sqlite_columns(connection: apsw.Connection) -> dict[str, str]:
    """Every column with its type."""
    rows = connection.execute(
        'SELECT t.name, c.name, c.type, c."notnull" OR c.pk FROM pragma_table_list AS t '
        "JOIN pragma_table_info(t.name) AS c WHERE t.schema = 'main' "
        "AND t.name NOT LIKE 'sqlite_%'"
    )
    return {
        f"{table}.{column}": _SQLITE_TYPES.get(kind, kind) + ("" if is_there else "?")
        for table, column, kind, is_there in rows
    }


def draw_postgres(connection: psycopg.Connection[Any]) -> str:
    """Every table with its columns, constraints and indexes, as the catalogue knows them."""
    return NOTE + "".join(_draw_table(connection, name) for name in _tables(connection))


def _tables(connection: psycopg.Connection[Any]) -> list[str]:
    rows = connection.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = %s::regnamespace "
        'ORDER BY relname COLLATE "C"',
        [SCHEMA],
    )
    return [name for (name,) in rows]


def _draw_table(connection: psycopg.Connection[Any], table: str) -> str:
    lines = [*_draw_columns(connection, table), *_draw_constraints(connection, table)]
    indexes = "".join(f"\n{index};\n" for index in _draw_indexes(connection, table))
    return f"\nCREATE TABLE {table} (\n" + ",\n".join(lines) + "\n);\n" + indexes


def _draw_columns(connection: psycopg.Connection[Any], table: str) -> Iterator[str]:
    rows = connection.execute(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, "
        "pg_get_expr(d.adbin, d.adrelid), nullif(c.collname, 'default') "
        "FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation "
        "LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
        "WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        [table],
    )
    for name, kind, is_there, default, collation in rows:
        parts = [f"    {name} {kind}"]
        parts += [f'COLLATE "{collation}"'] if collation else []
        parts += ["NOT NULL"] if is_there else []
        parts += [f"DEFAULT {default}"] if default else []
        yield " ".join(parts)


def _draw_constraints(connection: psycopg.Connection[Any], table: str) -> Iterator[str]:
    rows = connection.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = %s::regclass AND contype <> 'n' "
        "ORDER BY strpos('pufc', contype::text), conname COLLATE \"C\"",
        [table],
    )
    for (definition,) in rows:
        yield f"    {definition}"


def _draw_indexes(connection: psycopg.Connection[Any], table: str) -> Iterator[str]:
    rows = connection.execute(
        "SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c "
        "ON c.oid = i.indexrelid WHERE i.indrelid = %s::regclass AND NOT EXISTS "
        "(SELECT 1 FROM pg_constraint n WHERE n.conindid = i.indexrelid AND n.contype <> 'f') "
        'ORDER BY c.relname COLLATE "C"',
        [table],
    )
    for (definition,) in rows:
        yield definition.replace(f" {SCHEMA}.", " ")


def read_postgres_columns(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """Every column with its type."""
    rows = connection.execute(
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
        "WHERE table_schema = %s",
        [SCHEMA],
    )
    return {
        f"{table}.{column}": _POSTGRES_TYPES.get(kind, kind) + ("?" if is_nullable == "YES" else "")
        for table, column, kind, is_nullable in rows
    }


def undocumented(sqlite: Columns, postgres: Columns) -> list[str]:
    """Columns in which the engines differ without `DIFFERENCES` saying so, or the other way."""
    names = sqlite.keys() | postgres.keys()
    differ = {name for name in names if sqlite.get(name) != postgres.get(name)}
    return sorted(differ ^ DIFFERENCES.keys())


def draw_pictures(postgres_url: str) -> dict[Path, str]:
    """Both pictures, by the file that each belongs into. Migrates the database at the URL."""
    open_url(postgres_url).close()
    with psycopg.connect(postgres_url, **connection_settings()) as connection:
        postgres = draw_postgres(connection)
    with closing(sqlite_memory()) as memory:
        sqlite = draw_sqlite(memory)
    return {FOLDER / "sqlite/schema.sql": sqlite, FOLDER / "postgres/schema.sql": postgres}


def write_pictures() -> None:
    """Draws both anew, PostgreSQL's from a private server that lives for this one call."""
    with tempfile.TemporaryDirectory(prefix="engrain-picture-") as folder:
        Path(folder).chmod(0o711)  # the server's own unprivileged account goes through it
        server = local_server.start(Path(folder) / "server")
        try:
            pictures = draw_pictures(server.url)
        finally:
            local_server.stop(Path(folder) / "server")
    for path, picture in pictures.items():
        path.write_text(picture, "utf-8")


if __name__ == "__main__":
    write_pictures()
