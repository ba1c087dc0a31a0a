"""The PostgreSQL engine: anchors, lost commits, servers that go away, forks, and what errors say.

Run as a program, this file is the other process of a test: see `main`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from engrain import Memory
from engrain.contracts import faults
from engrain.contracts.errors import Busy, Corrupt, EngrainError, Refused, Uncertain
from engrain.contracts.ids import ScopeKey, SessionKey
from engrain.contracts.scope import Scope
from engrain.storage.database import Anchor, Writer
from engrain.storage.postgres import local_server
from engrain.storage.postgres.database import PostgresDatabase, connection_settings
from engrain.storage.postgres.open import open_url
from postgres_fixture import FAST, server_folder

ANA = Scope(org="acme", user="ana")
SCOPE = ScopeKey(1)
WAIT_S = 30.0
PROCESSES = 6


@pytest.fixture
def database(fresh_postgres_url: str) -> Iterator[PostgresDatabase]:
    """A database with one scope of key 1."""
    database = open_url(fresh_postgres_url)
    database.write(None, add_scope)
    yield database
    database.close()


def add_scope(writer: Writer) -> None:
    writer.run(
        "scopes.add", scope_key=1, org="acme", user_name="ana", secret=b"s" * 32, created_at=0
    )


def read_count(database: PostgresDatabase) -> int:
    with database.read() as reader:
        return _count(reader)


def _count(reader: Any) -> int:
    row = reader.one("terms.read_settled", scope_key=1)
    return row[0] if row else 0


def set_count(writer: Writer, count: int) -> None:
    writer.run("terms.set_settled", scope_key=1, episode_count=count, total_length=0, last_block=0)


def increment(writer: Writer) -> None:
    """Read, decide, write: what every verb does, and what loses updates without an anchor."""
    set_count(writer, _count(writer) + 1)


@contextmanager
def armed(hook: Callable[[str], None]) -> Iterator[None]:
    faults.arm(hook)
    try:
        yield
    finally:
        faults.arm(None)


def terminate_others(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


# Transactions


def test_writers_of_one_anchor_lose_no_update(database: PostgresDatabase) -> None:
    def many(_: int) -> None:
        for _ in range(25):
            database.write(SCOPE, increment)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(many, range(8)))
    assert read_count(database) == 8 * 25


def test_a_body_that_raises_leaves_nothing_and_a_usable_connection(
    database: PostgresDatabase,
) -> None:
    def body(writer: Writer) -> None:
        set_count(writer, 7)
        raise KeyError("a fault of the caller")

    for _ in range(3):
        with pytest.raises(KeyError):
            database.write(SCOPE, body)
    assert read_count(database) == 0
    database.write(SCOPE, increment)
    assert read_count(database) == 1


def test_a_read_sees_one_moment(database: PostgresDatabase) -> None:
    with database.read() as reader:
        before = _count(reader)
        database.write(SCOPE, increment)
        assert _count(reader) == before == 0
    assert read_count(database) == 1


def test_a_reader_cannot_write(database: PostgresDatabase) -> None:
    with pytest.raises(EngrainError), database.read() as reader:
        reader.one("sessions.next_key", scope_key=1)


def test_a_write_that_may_not_wait_gives_up_while_its_anchor_is_held(
    database: PostgresDatabase,
) -> None:
    held, done = threading.Event(), threading.Event()

    def hold(writer: Writer) -> None:
        _count(writer)  # the answer to this says that the anchor is locked
        held.set()
        assert done.wait(WAIT_S)

    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(database.write, SCOPE, hold)
        assert held.wait(WAIT_S)
        assert database.try_write(SCOPE, lambda writer: "done") is None
        done.set()
        holder.result(WAIT_S)
    assert database.try_write(SCOPE, lambda writer: "done") == "done"


def test_a_write_waits_its_bound_for_an_anchor_and_is_busy(database: PostgresDatabase) -> None:
    held, done = threading.Event(), threading.Event()

    def hold(writer: Writer) -> None:
        _count(writer)
        held.set()
        assert done.wait(WAIT_S)

    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(database.write, SCOPE, hold)
        assert held.wait(WAIT_S)
        with pytest.raises(Busy) as refused:
            database.write(SCOPE, increment)
        done.set()
        holder.result(WAIT_S)
    assert refused.value.retryable
    assert read_count(database) == 0


def test_writers_that_lock_in_opposite_orders_both_succeed(
    database: PostgresDatabase, fresh_postgres_url: str
) -> None:
    with Memory.open(fresh_postgres_url) as memory:
        first, second = memory.sessions.start(ANA), memory.sessions.start(ANA)
    with database.read() as reader:
        keys = [
            SessionKey(1, row[0])
            for session in (first, second)
            if (row := reader.one("sessions.find_key", scope_key=1, session_id=session.id.bytes))
        ]
    both_hold_one = threading.Barrier(2)
    runs = []

    def lock_the_other(other: SessionKey) -> Callable[[Writer], str]:
        def body(writer: Writer) -> str:
            runs.append(other.session)
            if runs.count(other.session) == 1:
                both_hold_one.wait(WAIT_S)
            writer.one("sessions.lock", scope_key=1, session_key=other.session)
            return "done"

        return body

    def cross(mine: SessionKey, other: SessionKey) -> str:
        def body(writer: Writer) -> str:
            writer.one("sessions.read_extraction", scope_key=1, session_key=mine.session)
            return lock_the_other(other)(writer)

        return database.write(mine, body)

    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(cross, *keys), pool.submit(cross, *reversed(keys))]
        assert [end.result(WAIT_S) for end in ends] == ["done", "done"]
    assert len(runs) > 2, "one of them was rolled back and run again"


# Connections that break


@pytest.mark.invariant("INV-07")
def test_a_connection_lost_in_the_commit_is_uncertain(
    database: PostgresDatabase, fresh_postgres_url: str
) -> None:
    def cut(name: str) -> None:
        if name == "commit.before":
            terminate_others(fresh_postgres_url)

    with armed(cut), pytest.raises(Uncertain):
        database.write(SCOPE, increment)
    patiently(lambda: database.write(SCOPE, increment))
    assert read_count(database) == 1


@pytest.mark.invariant("INV-07")
def test_an_acknowledgement_lost_after_the_commit_is_uncertain_and_done(
    database: PostgresDatabase,
) -> None:
    def lose(name: str) -> None:
        if name == "commit.after":
            raise OSError("the answer was lost")

    with armed(lose), pytest.raises(Uncertain):
        database.write(SCOPE, increment)
    assert read_count(database) == 1


def test_a_connection_lost_before_the_commit_is_busy_and_nothing_is_done(
    database: PostgresDatabase, fresh_postgres_url: str
) -> None:
    def body(writer: Writer) -> None:
        increment(writer)
        terminate_others(fresh_postgres_url)
        increment(writer)

    with pytest.raises(Busy) as refused:
        database.write(SCOPE, body)
    assert refused.value.retryable
    assert patiently(lambda: read_count(database)) == 0


def patiently(verb: Callable[[], Any]) -> Any:
    """Retries as a caller may: connections of the pool that were cut at once are found one by
    one."""
    for _ in range(64):
        try:
            return verb()
        except Busy:
            continue
    return verb()


def test_a_memory_outlives_a_restart_of_its_server() -> None:
    parent = Path(tempfile.mkdtemp(prefix="engrain-restart-", dir=server_folder()))
    parent.chmod(0o711)  # the server's own account goes through it
    try:
        server = local_server.start(parent / "server", settings=FAST)
        with Memory.open(server.url) as memory:
            memory.audit.record(ANA, "before", {})
            local_server.stop(parent / "server")
            with pytest.raises(Busy):
                memory.audit.record(ANA, "while it is down", {})
            local_server.start(parent / "server", settings=FAST)
            patiently(lambda: memory.audit.record(ANA, "after", {}))
            assert [entry.name for entry in memory.audit.list(ANA)] == ["before", "after"]
    finally:
        local_server.stop(parent / "server")
        shutil.rmtree(parent)


# Opening, closing, forking


def test_no_server_at_all_is_busy_and_says_what_to_look_at(tmp_path: Path) -> None:
    with pytest.raises(Busy, match="is the server running"):
        open_url(f"postgresql:///engrain?host={tmp_path}")


def test_a_wrong_password_shows_neither_password_nor_url(fresh_postgres_url: str) -> None:
    parts = urlsplit(fresh_postgres_url)
    secret = "not-the-password"
    wrong = parts._replace(netloc=f"{parts.username}:{secret}@{parts.netloc.split('@')[-1]}")
    with pytest.raises(Refused, match="user, password") as refused:
        open_url(wrong.geturl())
    assert not refused.value.retryable
    assert secret not in "".join(traceback.format_exception(refused.value))


def test_a_closed_database_refuses(database: PostgresDatabase) -> None:
    database.close()
    database.close()
    with pytest.raises(Refused, match="closed"):
        database.write(SCOPE, increment)
    with pytest.raises(Refused, match="closed"), database.read():
        pass


def test_a_first_open_by_six_processes_makes_one_schema(fresh_postgres_url: str) -> None:
    children = [start("record", fresh_postgres_url) for _ in range(PROCESSES)]
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
    with Memory.open(fresh_postgres_url) as memory:
        assert memory.audit.verify(ANA) == PROCESSES


def test_a_memory_is_refused_in_a_forked_child_and_unharmed_in_its_parent(
    fresh_postgres_url: str,
) -> None:
    with start("fork", fresh_postgres_url) as child:
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert out.splitlines() == ["child: Refused Refused", "parent: 2"]


# What errors say


@pytest.mark.invariant("INV-26")
@pytest.mark.parametrize("anchor", [SCOPE, None])
def test_an_error_of_the_server_shows_no_content(
    database: PostgresDatabase, anchor: Anchor
) -> None:
    """The server's own words hold the row that it refused."""

    def body(writer: Writer) -> None:
        writer.run(
            "audit.add",
            scope_key=1,
            number=1,
            name="a word that nobody may see",
            facts="{}",
            recorded_at=0,
            link=b"too short",
        )
        writer.one("audit.head", scope_key=1)

    with pytest.raises(Corrupt) as caught:
        database.write(anchor, body)
    assert "CheckViolation" in caught.value.message
    assert "nobody may see" not in "".join(traceback.format_exception(caught.value))
    assert "nobody may see" not in str(caught.value.facts())


def test_connections_name_themselves_and_stay_in_our_schema(
    database: PostgresDatabase, fresh_postgres_url: str
) -> None:
    with psycopg.connect(fresh_postgres_url, **connection_settings()) as connection:
        row = connection.execute(
            "SELECT current_setting('search_path'), current_setting('application_name'), "
            "current_setting('lock_timeout'), current_setting('client_encoding')"
        ).fetchone()
    assert row == ("engrain", "engrain", "5s", "UTF8")


def start(task: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, task, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def main(task: str, url: str) -> None:
    """`record`: one audit entry at a signal. `fork`: a memory used on both sides of a fork."""
    {"record": _record_at_a_signal, "fork": _fork}[task](url)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _record_at_a_signal(url: str) -> None:
    _say("ready")
    sys.stdin.readline()
    with Memory.open(url) as memory:
        memory.audit.record(ANA, "opened", {})


def _fork(url: str) -> None:
    memory = Memory.open(url)
    memory.audit.record(ANA, "before", {})
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        assert status == 0
        memory.audit.record(ANA, "after", {})
        _say(f"parent: {memory.audit.verify(ANA)}")
        memory.close()
        return
    errors = []
    for verb in (lambda: memory.audit.record(ANA, "child", {}), lambda: memory.audit.list(ANA)):
        try:
            verb()
        except Refused as error:
            errors.append(type(error).__name__)
    _say(f"child: {' '.join(errors)}")
    memory.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
