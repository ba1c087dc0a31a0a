"""PostgreSQL for tests: one private server per run, shared by all workers; one database per test.

`ENGRAIN_TEST_POSTGRES_URL` names an existing server instead; its role must be allowed to create
databases. Whoever uses the private server holds a shared lock on a file beside its directory. The
one who leaves last takes the lock alone and removes the server; so does the next run for a server
whose users were killed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from engrain.storage.postgres import local_server

_PREFIX = f"engrain-test-{os.geteuid()}-"
_USERS = ".users"
_MEMORY_BYTES_MIN = 2 * 1024**3
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
}
"""Settings for a server whose data nobody will miss."""


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server that every worker of this run shares."""
    given = os.environ.get("ENGRAIN_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    remove_abandoned(server_folder())
    with joined(_shared_directory(tmp_path_factory)) as server:
        yield server.url


@pytest.fixture
def fresh_postgres_url(postgres_url: str) -> Iterator[str]:
    """URL of an empty database that is dropped after the test, whoever is still connected."""
    name = f"test_{secrets.token_hex(8)}"
    _administer(postgres_url, f"CREATE DATABASE {name} TEMPLATE template0")
    yield urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
    _administer(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


def _administer(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def _shared_directory(factory: pytest.TempPathFactory) -> Path:
    """Not below pytest's own folder, which an unprivileged account cannot enter."""
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    digest = sha256(os.fsencode(root)).hexdigest()[:12]
    return server_folder() / f"{_PREFIX}{digest}"


def server_folder() -> Path:
    """In memory where there is room: making a database there is ten times faster."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < _MEMORY_BYTES_MIN:
        return Path(tempfile.gettempdir())
    runs_programs = not os.statvfs(memory).f_flag & os.ST_NOEXEC
    return memory if runs_programs else Path(tempfile.gettempdir())


@contextmanager
def joined(directory: Path) -> Iterator[local_server.LocalServer]:
    """The server, while at least one user is in; the last one out removes it."""
    users = _enter(directory.with_suffix(_USERS))
    try:
        yield local_server.start(directory, settings=FAST)
    finally:
        _remove_if_unused(directory, users)
        os.close(users)


def _enter(path: Path) -> int:
    """A shared lock on the file that is at `path`, not on one that a leaver has removed."""
    while True:
        users = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(users, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(users)):
                return users
        os.close(users)


def _remove_if_unused(directory: Path, users: int) -> None:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    local_server.stop(directory)
    shutil.rmtree(directory, ignore_errors=True)
    directory.with_suffix(_USERS).unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Stops and removes the servers of runs that were killed."""
    for path in folder.glob(f"{_PREFIX}*{_USERS}"):
        with suppress(FileNotFoundError):
            users = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                _remove_if_unused(path.with_suffix(""), users)
            finally:
                os.close(users)
