"""A private PostgreSQL with its own settings, fsync and all, and an empty database in it."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from engrain.contracts.errors import UnsafeFile
from engrain.storage.postgres import local_server

_SETTINGS = {"shared_buffers": "256MB"}


@contextmanager
def empty_database(work: Path) -> Iterator[str]:
    """Its URL. The server is kept below `work` and stopped at the end."""
    directory, server = _start(work)
    name = f"bench_{secrets.token_hex(4)}"
    try:
        _administer(server.url, f"CREATE DATABASE {name} TEMPLATE template0")
        yield urlsplit(server.url)._replace(path=f"/{name}").geturl()
        _administer(server.url, f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        local_server.stop(directory)


def _start(work: Path) -> tuple[Path, local_server.LocalServer]:
    """Below `work`, or where the server's account, which is not root, can go."""
    try:
        directory = work / "postgres"
        return directory, local_server.start(directory, settings=_SETTINGS)
    except UnsafeFile:
        directory = Path(tempfile.gettempdir()) / "engrain-bench-postgres"
        return directory, local_server.start(directory, settings=_SETTINGS)


def _administer(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def server_version(url: str) -> str:
    """Such as `18.1`."""
    with psycopg.connect(url) as connection:
        return f"{connection.info.server_version / 10_000:.4g}"
