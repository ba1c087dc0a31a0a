"""Opens a PostgreSQL database and brings its schema up to date."""

from __future__ import annotations

import re

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from engrain.contracts import limits
from engrain.contracts.clock import Clock
from engrain.contracts.errors import Busy, InvalidValue, Refused, UnsupportedSystem
from engrain.contracts.faults import reach
from engrain.storage.migrate import Applied, Migration, load_migrations, migrate
from engrain.storage.postgres.database import (
    SCHEMA,
    Connection,
    PostgresDatabase,
    connection_settings,
    translate_error,
)

MIGRATIONS = load_migrations("engrain.storage.postgres")
SERVER_FLOOR = 140_000
_MIGRATION_LOCK = 0x656E677261696E  # "engrain" in ASCII


# libpq gives a failed connection no SQLSTATE; a server of another language stays unreachable.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry"
    r'|permission denied for database|(?:role|database) ".*" does not exist'
)


class PostgresMigrator:
    """Applies migrations over one connection, which holds the migration lock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list_applied(self) -> list[Applied]:
        row = self._connection.execute("SELECT to_regclass(%s)", [f"{SCHEMA}.migrations"])
        if (found := row.fetchone()) is None or found[0] is None:
            return []
        rows = self._connection.execute("SELECT number, checksum FROM migrations ORDER BY number")
        return [Applied(number, checksum) for number, checksum in rows]

    def apply(self, migration: Migration) -> None:
        with self._connection.transaction():
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations (number bigint PRIMARY KEY, "
                "name text NOT NULL, checksum text NOT NULL, "
                "applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            )
            for statement in migration.statements:
                self._connection.execute(statement.encode())
                reach("migrate.statement")
            self._connection.execute(
                "INSERT INTO migrations (number, name, checksum) VALUES (%s, %s, %s)",
                (migration.number, migration.name, migration.checksum),
            )


def open_url(
    url: str, clock: Clock | None = None, *, migrations: tuple[Migration, ...] = MIGRATIONS
) -> PostgresDatabase:
    """The database at `url`; `clock` replaces the server's clock."""
    _check_url(url)
    try:
        _upgrade(url, migrations)
    except psycopg.errors.LockNotAvailable as error:
        raise translate_error(error) from error
    except psycopg.OperationalError as error:
        if _REFUSED.search(str(error)):
            raise Refused(
                "PostgreSQL refuses the login: check user, password and database"
            ) from None
        raise Busy(
            "PostgreSQL is not reachable; is the server running?", retry_after_s=1.0
        ) from error
    except psycopg.Error as error:
        raise translate_error(error) from error
    return PostgresDatabase(url, clock)


def _check_url(url: str) -> None:
    """Raises `InvalidValue` for what libpq cannot read; its own words could quote the password."""
    try:
        port = str(conninfo_to_dict(url).get("port") or 1)
    except psycopg.ProgrammingError:
        raise InvalidValue(
            "url", "must be postgresql://USER:PASSWORD@HOST/NAME, other characters as %XX"
        ) from None
    if not all(one.isdecimal() and 0 < int(one) < 65_536 for one in port.split(",") if one):
        raise InvalidValue("url", "a port is 1 to 65,535")


def _upgrade(url: str, migrations: tuple[Migration, ...]) -> None:
    with psycopg.connect(url, **connection_settings()) as connection:
        if connection.info.server_version < SERVER_FLOOR:
            raise UnsupportedSystem(
                f"PostgreSQL {connection.info.server_version // 10_000} is too old, 14 is needed"
            )
        wait_ms = limits.first_open_wait_us // 1_000
        connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(wait_ms)))
        connection.execute("SELECT pg_advisory_lock(%s)", [_MIGRATION_LOCK])
        try:
            connection.execute(
                sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA))
            )
            migrate(PostgresMigrator(connection), migrations)
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s)", [_MIGRATION_LOCK])
