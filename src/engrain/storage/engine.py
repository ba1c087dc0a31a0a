"""Opens the engine that a URL names. Each engine's driver is imported only when it is asked for."""

from __future__ import annotations

from pathlib import Path

from engrain.contracts.clock import Clock
from engrain.contracts.errors import InvalidValue
from engrain.storage.database import Database

MEMORY = ":memory:"
_POSTGRES = ("postgresql://", "postgres://")
_SQLITE = "sqlite://"


def open_database(
    url: str, clock: Clock, *, assets: Path | None = None, is_clock_held: bool = False
) -> Database:
    """The database at `url`: a path, `sqlite:///path`, `:memory:` or `postgresql://…`.

    `assets` is a folder other than the one beside a SQLite file. PostgreSQL tells the time itself
    unless the clock is held.
    """
    if assets is not None and (url == MEMORY or url.startswith(_POSTGRES)):
        raise InvalidValue("assets", "lie beside a SQLite file alone")
    if url.startswith(_POSTGRES):
        from engrain.storage.postgres.open import open_url

        return open_url(url, clock if is_clock_held else None)
    from engrain.storage.sqlite.open import open_file, open_memory

    if url == MEMORY:
        return open_memory(clock)
    return open_file(sqlite_path(url), clock, assets=assets)


def sqlite_path(url: str) -> Path:
    """The path that a SQLite URL or a plain path names."""
    if url.startswith(_SQLITE):
        rest = url.removeprefix(_SQLITE)
        if not rest.startswith("/"):
            raise InvalidValue("url", "write sqlite:///relative.sqlite3 or sqlite:////absolute")
        return Path(rest[1:])
    if "://" in url or not url:
        raise InvalidValue("url", "must be a path, :memory:, sqlite:///… or postgresql://…")
    return Path(url)
