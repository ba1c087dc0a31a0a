"""Migrations: each once, whole, and never a mix, however many upgrade and whenever one is killed.

Run as a program, this file is the process that upgrades in those tests: see `main`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from engrain.contracts import faults
from engrain.contracts.episodes import NewEpisode
from engrain.contracts.errors import Corrupt, EngrainError, NewerSchema, UnsafeFile
from engrain.contracts.scope import Scope
from engrain.contracts.workspace import DEFAULT_WORKSPACE
from engrain.storage.database import Database
from engrain.storage.migrate import Applied, Migration, load_migrations, pending
from engrain.storage.postgres.database import connection_settings
from engrain.storage.postgres.open import MIGRATIONS as POSTGRES_MIGRATIONS
from engrain.storage.postgres.open import open_url
from engrain.storage.schema_picture import draw_postgres, draw_sqlite
from engrain.storage.sqlite.connections import open_connection
from engrain.storage.sqlite.files import MIGRATIONS as SQLITE_MIGRATIONS
from engrain.storage.sqlite.open import open_file
from engrain.system.clock import SystemClock
from engrain.testing.engines import PostgresEngine, SqliteFileEngine, open_stores

ANA = Scope(org="acme", user="ana")
NEXT = Migration(
    len(SQLITE_MIGRATIONS) + 1,
    "moods",
    "-- What a later version may do: change a table, fill it, add one.\n"
    "ALTER TABLE episodes ADD COLUMN mood TEXT;\n"
    "UPDATE episodes SET mood = 'calm';\n"
    "CREATE TABLE moods (mood TEXT PRIMARY KEY);\n"
    "INSERT INTO moods SELECT DISTINCT mood FROM episodes;\n",
)
Engine = SqliteFileEngine | PostgresEngine


def known(url: str, *more: Migration) -> tuple[Migration, ...]:
    """What a version knows that ships `more` migrations than this one."""
    return (POSTGRES_MIGRATIONS if "://" in url else SQLITE_MIGRATIONS) + more


def open_with(url: str, migrations: tuple[Migration, ...]) -> Database:
    if "://" in url:
        return open_url(url, migrations=migrations)
    return open_file(Path(url), SystemClock(), migrations=migrations)


def look(url: str) -> dict[str, Any]:
    """Schema and content as another process finds them, without opening them as Engrain does."""
    if "://" in url:
        with psycopg.connect(url, **connection_settings()) as connection:
            has_schema = connection.execute("SELECT to_regnamespace('engrain')").fetchone() != (
                None,
            )
            schema = draw_postgres(connection) if has_schema else ""
            return _described(schema, lambda query: connection.execute(query).fetchall())
    if not os.path.lexists(url):
        return _described("", lambda _: [])
    with closing(open_connection(url, busy_wait_ms=5_000)) as connection:
        return _described(draw_sqlite(connection), lambda query: list(connection.execute(query)))


def _described(schema: str, ask: Callable[[Any], list[Any]]) -> dict[str, Any]:
    """Values that JSON gives back as they are."""
    has = {name: f"CREATE TABLE {name} " in schema for name in ("migrations", "episodes", "moods")}
    applied = ask("SELECT number FROM migrations ORDER BY number") if has["migrations"] else []
    texts = ask("SELECT text FROM episodes ORDER BY text") if has["episodes"] else []
    moods = ask("SELECT mood FROM episodes ORDER BY text") if has["moods"] else []
    return {
        "schema": schema,
        "applied": [number for (number,) in applied],
        "texts": [text for (text,) in texts],
        "moods": [mood for (mood,) in moods],
    }


def main(task: str, url: str) -> None:
    """`race` says that it is ready and upgrades at a line; `first` and `next`: with kills."""
    migrations = known(url) if task == "first" else known(url, NEXT)
    if task != "race":
        sys.stdout.write(json.dumps(upgrade_with_kills(url, migrations)))
        return
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    open_with(url, migrations).close()


def upgrade_with_kills(url: str, migrations: tuple[Migration, ...]) -> list[dict[str, Any]]:
    """Upgrades in children killed at the first fault point, the second, … until one gets through.

    After a migration that is there to stay the count begins anew. Gives what is found after each
    of them. This process opens nothing, so children inherit nothing.
    """
    found: list[dict[str, Any]] = []
    is_killed, at = True, 0
    while is_killed:
        is_further = len(found) > 1 and found[-1]["applied"] != found[-2]["applied"]
        at = 1 if is_further else at + 1
        child = os.fork()
        if child == 0:
            _upgrade_and_die(url, migrations, at)
        _, status = os.waitpid(child, 0)
        is_killed = os.WIFSIGNALED(status)
        assert is_killed or os.waitstatus_to_exitcode(status) == 0
        found.append(_look_in_a_child(url))
    return found


def _look_in_a_child(url: str) -> dict[str, Any]:
    reading, writing = os.pipe()
    if os.fork() == 0:
        with os.fdopen(writing, "w") as out:
            json.dump(look(url), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        found: dict[str, Any] = json.load(answer)
    os.wait()
    return found


def _upgrade_and_die(url: str, migrations: tuple[Migration, ...], at: int) -> None:
    reached = 0

    def hook(name: str) -> None:
        nonlocal reached
        reached += 1
        if reached == at:
            os.kill(os.getpid(), signal.SIGKILL)

    faults.arm(hook)
    code = 1
    with suppress(EngrainError):
        open_with(url, migrations).close()
        code = 0
    os._exit(code)


def start(task: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, task, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run(task: str, url: str) -> Any:
    with start(task, url) as child:
        out, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    return json.loads(out)


def remember(engine: Engine, *texts: str) -> None:
    """Episodes in a session of their own."""
    with open_stores(engine) as stores:
        session = stores.sessions.start(ANA, DEFAULT_WORKSPACE)
        new = [
            NewEpisode(text=text, first_sequence=1, last_sequence=1, ordinal=at)
            for at, text in enumerate(texts)
        ]
        stores.episodes.append(ANA, session.id, new)


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "postgres":
        return PostgresEngine(request.getfixturevalue("fresh_postgres_url"))
    return SqliteFileEngine(request.getfixturevalue("tmp_path") / "engrain.sqlite3")


# What is known, and what is refused


def test_shipped_migrations_are_numbered_without_gaps_and_alike_on_both_engines() -> None:
    sqlite = load_migrations("engrain.storage.sqlite")
    postgres = load_migrations("engrain.storage.postgres")
    assert [one.number for one in sqlite] == list(range(1, len(sqlite) + 1))
    assert [(one.number, one.name) for one in sqlite] == [
        (one.number, one.name) for one in postgres
    ]


def test_a_semicolon_inside_a_line_does_not_split_a_statement() -> None:
    one = Migration(1, "x", "-- a; comment\nINSERT INTO t VALUES ('a;b');\n\nDROP TABLE t\n;\n")
    assert one.statements == ["INSERT INTO t VALUES ('a;b')", "DROP TABLE t"]


@pytest.mark.invariant("INV-08")
def test_only_what_is_not_applied_yet_is_pending() -> None:
    migrations = known("", NEXT)
    done = [Applied(one.number, one.checksum) for one in migrations[:-1]]
    assert pending(done, migrations) == [NEXT]
    assert pending([], migrations) == list(migrations)


@pytest.mark.invariant("INV-08")
def test_a_database_of_a_newer_version_is_refused_and_left_alone(engine: Engine) -> None:
    assert engine.url
    open_with(engine.url, known(engine.url, NEXT)).close()
    before = look(engine.url)
    with pytest.raises(NewerSchema) as refused:
        engine.open()
    assert refused.value.facts()["found"] == NEXT.number
    assert "upgrade Engrain" in refused.value.message
    assert look(engine.url) == before


@pytest.mark.invariant("INV-08")
def test_a_migration_that_changed_after_it_was_applied_is_refused(engine: Engine) -> None:
    assert engine.url
    engine.open().close()
    first, *rest = known(engine.url, NEXT)
    shipped = [one.number for one in known(engine.url)]
    changed = Migration(first.number, first.name, first.text + "\n-- an afterthought\n")
    with pytest.raises(Corrupt, match="migration 1 "):
        open_with(engine.url, (changed, *rest))
    assert look(engine.url)["applied"] == shipped


@pytest.mark.invariant("INV-08")
def test_a_migration_that_fails_leaves_the_schema_as_it_was(engine: Engine) -> None:
    assert engine.url
    remember(engine, "kept")
    before = look(engine.url)
    broken = Migration(NEXT.number, "broken", NEXT.text + "INSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(Corrupt):
        open_with(engine.url, known(engine.url, broken))
    assert look(engine.url) == before
    open_with(engine.url, known(engine.url, NEXT)).close()
    assert look(engine.url)["moods"] == ["calm"]


@pytest.mark.invariant("INV-08")
def test_opening_again_migrates_nothing(engine: Engine) -> None:
    engine.open().close()
    before = engine.alter("SELECT number, checksum, applied_at FROM migrations")
    engine.open().close()
    assert engine.alter("SELECT number, checksum, applied_at FROM migrations") == before
    assert len(before) == len(SQLITE_MIGRATIONS)


# Killed in the middle


@pytest.mark.invariant("INV-08")
def test_a_kill_in_any_statement_leaves_the_old_schema_or_the_new(engine: Engine) -> None:
    assert engine.url
    remember(engine, "kept", "kept too")
    old = look(engine.url)
    *killed, last = run("next", engine.url)
    assert len(killed) >= len(NEXT.statements)
    assert killed == [old] * len(killed)
    assert last["applied"] == [*old["applied"], NEXT.number]
    assert last["texts"] == old["texts"] == ["kept", "kept too"]
    assert last["moods"] == ["calm", "calm"]


@pytest.mark.invariant("INV-08")
def test_a_kill_in_any_statement_of_a_first_open_leaves_whole_migrations(
    engine: Engine,
) -> None:
    assert engine.url
    *killed, last = run("first", engine.url)
    assert len(killed) >= sum(len(one.statements) for one in known(engine.url))
    numbers = [one.number for one in known(engine.url)]
    schemas = {tuple(one["applied"]): one["schema"] for one in killed}
    assert schemas[()].count("CREATE") == 0
    assert set(schemas) <= {tuple(numbers[:count]) for count in range(len(numbers))}
    assert [one["schema"] for one in killed] == [schemas[tuple(one["applied"])] for one in killed]
    assert last["applied"] == numbers
    remember(engine, "works")
    if isinstance(engine, SqliteFileEngine):
        assert {one.name for one in engine.path.parent.iterdir()} == {
            "engrain.sqlite3",
            "engrain.sqlite3.assets",
            "engrain.sqlite3.lock",
        }


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_what_a_killed_first_open_left_is_cleared_away(tmp_path: Path, end: str) -> None:
    leftover = tmp_path / f".engrain.sqlite3.creating{end}"
    leftover.write_bytes(b"half a database")
    open_file(tmp_path / "engrain.sqlite3", SystemClock()).close()
    assert not leftover.exists()


def test_a_leftover_that_cannot_be_cleared_away_is_named(tmp_path: Path) -> None:
    leftover = tmp_path / ".engrain.sqlite3.creating"
    leftover.mkdir()
    with pytest.raises(UnsafeFile, match=r"\.engrain\.sqlite3\.creating"):
        open_file(tmp_path / "engrain.sqlite3", SystemClock())
    assert list(tmp_path.iterdir()) == [leftover]


# Two at once


@pytest.mark.invariant("INV-08")
def test_upgraders_at_once_all_succeed_and_migrate_once(engine: Engine) -> None:
    assert engine.url
    remember(engine, "kept")
    children = [start("race", engine.url) for _ in range(4)]
    for child in children:
        assert child.stdout and child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        with child:
            child.communicate(timeout=60)
        assert child.returncode == 0
    found = look(engine.url)
    assert found["applied"] == [*(one.number for one in known(engine.url)), NEXT.number]
    assert (found["texts"], found["moods"]) == (["kept"], ["calm"])


# The copy that is kept


def copy_of(engine: SqliteFileEngine) -> Path:
    return engine.path.with_name(f"{engine.path.name}.before-{NEXT.number:04}")


def texts_in(path: Path) -> list[str]:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as copy:
        return [text for (text,) in copy.execute("SELECT text FROM episodes ORDER BY text")]


@pytest.fixture
def file_engine(tmp_path: Path) -> SqliteFileEngine:
    return SqliteFileEngine(tmp_path / "engrain.sqlite3")


def test_a_private_copy_is_kept_before_an_upgrade(file_engine: SqliteFileEngine) -> None:
    remember(file_engine, "one", "two")
    old = look(file_engine.url)
    open_with(file_engine.url, known("", NEXT)).close()
    copy = copy_of(file_engine)
    assert copy.stat().st_mode & 0o7777 == 0o600
    assert texts_in(copy) == ["one", "two"]
    assert look(str(copy)) == old


def test_a_first_open_keeps_no_copy(file_engine: SqliteFileEngine) -> None:
    open_with(file_engine.url, known("", NEXT)).close()
    assert not copy_of(file_engine).exists()


def test_the_copy_holds_what_was_written_after_an_upgrade_that_failed(
    file_engine: SqliteFileEngine,
) -> None:
    remember(file_engine, "early")
    broken = Migration(NEXT.number, "broken", "INSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(Corrupt):
        open_with(file_engine.url, known("", broken))
    assert texts_in(copy_of(file_engine)) == ["early"]
    remember(file_engine, "late")
    open_with(file_engine.url, known("", NEXT)).close()
    assert texts_in(copy_of(file_engine)) == ["early", "late"]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
