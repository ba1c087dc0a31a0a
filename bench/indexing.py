"""Indexing: what it costs to make one episode durable and found, and how much the index takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import apsw
import psycopg

from engrain import Memory, Scope
from engrain.contracts.episodes import NewEpisode
from engrain.contracts.ids import EpisodeId, SessionId
from engrain.contracts.limits import settle_episodes_max
from floors import open_bare
from material import Words, make_vocabulary
from postgres_server import empty_database
from report import Goal, Section, lines_of
from run import Run
from syncs import counted
from timing import MS, Loop, interleave
from turns import ANA

_ROUNDS = 64
_BLOCK = 16
_STORED = 10_240
_A_SCOPE = 1_024
_ERASED = 1_000
_CHARACTERS = 200
_INDEX = ("tail", "forward", "postings", "settled")
_KIB = 1_024


def make_episodes(count: int, *, seed: int = 1, first: int = 1) -> list[NewEpisode]:
    """Episodes of 200 characters, the length of a message in a chat."""
    words = Words(make_vocabulary(20_000), seed)
    return [
        NewEpisode(text=words.text(_CHARACTERS), first_sequence=at, last_sequence=at)
        for at in range(first, first + count)
    ]


def measure(run: Run) -> Section:
    """Time, log and size on SQLite, size on PostgreSQL, and one scope's forgetting."""
    directory = run.fresh("indexing")
    rounds = run.rounds(_ROUNDS)
    taken = _measure_time(directory, rounds)
    mean_ms = sum(taken["Engrain, with its share of settling"]) / (rounds * _BLOCK) / MS
    stored = int(_STORED * run.share) or _A_SCOPE
    per_episode = _size_on_sqlite(directory / "size.sqlite3", stored)
    wal = _count_wal(directory / "wal.sqlite3")
    with empty_database(run.work) as url:
        on_postgres = _size_on_postgres(url, stored)
    erasing_ms = _time_forgetting(directory / "forget.sqlite3") / MS
    return Section(
        "Index an episode",
        f"One episode of {_CHARACTERS} characters in each transaction.",
        lines_of(taken),
        [
            Goal("one durable indexed episode, mean", mean_ms, 0.5, unit="ms", is_latency=True),
            Goal("write-ahead log for each episode", wal / _KIB, 30, unit="KB"),
            Goal("index on SQLite for each episode", per_episode / _KIB, 1, unit="KB"),
            Goal("index on PostgreSQL for each episode", on_postgres / _KIB, 2, unit="KB"),
        ],
        [f"Forgetting {_ERASED:,} settled episodes of a scope in one call: {erasing_ms:.0f} ms."],
    )


class _Appender:
    """Appends episodes one by one, and settles whenever a batch of them is full."""

    def __init__(self, memory: Memory, episodes: list[NewEpisode]) -> None:
        self._memory = memory
        self._episodes = episodes
        self._session = memory.sessions.start(ANA).id

    def append(self, at: int) -> None:
        self._memory.episodes.append(ANA, self._session, [self._episodes[at]])
        if (at + 1) % settle_episodes_max == 0:
            self._memory.episodes.settle(ANA)


def _measure_time(directory: Path, rounds: int) -> dict[str, list[int]]:
    warm_up = settle_episodes_max // _BLOCK
    episodes = make_episodes((rounds + warm_up) * _BLOCK)
    with Memory.open(directory / "engrain.sqlite3") as memory:
        appender = _Appender(memory, episodes)
        contestants = {
            "Engrain, with its share of settling": Loop(appender.append),
            "SQLite FTS5": Loop(_fts_append(directory / "fts.sqlite3", episodes)),
        }
        return interleave(contestants, rounds=rounds, block=_BLOCK, warm_up=warm_up)


def _fts_append(path: Path, episodes: list[NewEpisode]) -> Callable[[int], None]:
    connection = open_bare(path, apsw.SQLITE_OPEN_CREATE)
    connection.execute("PRAGMA wal_autocheckpoint = 1000")
    connection.execute("CREATE TABLE episodes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
    connection.execute(
        "CREATE VIRTUAL TABLE found USING fts5(text, content='episodes', content_rowid='id')"
    )

    def append(at: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO episodes VALUES (?, ?)", (at, episodes[at].text))
        connection.execute("INSERT INTO found (rowid, text) VALUES (?, ?)", (at, episodes[at].text))
        connection.execute("COMMIT")

    return append


def _count_wal(path: Path) -> float:
    """Bytes that went into the log for each episode, settling included."""
    count = 4 * settle_episodes_max
    with counted() as since, Memory.open(path) as memory:
        appender = _Appender(memory, make_episodes(count))
        since()
        for at in range(count):
            appender.append(at)
        return since()["log bytes"] / count


def _fill(memory: Memory, count: int) -> None:
    """Scopes of 1,024 settled episodes each."""
    for number in range(count // _A_SCOPE):
        scope = Scope(org="bench", user=f"user-{number}")
        append_settled(memory, scope, make_episodes(_A_SCOPE, seed=number))


def append_settled(
    memory: Memory, scope: Scope, episodes: list[NewEpisode]
) -> tuple[SessionId, tuple[EpisodeId, ...]]:
    """A new session with these episodes, settled as far as full batches go."""
    session = memory.sessions.start(scope).id
    receipt = memory.episodes.append(scope, session, episodes)
    memory.enrichment.settle(scope)
    return session, receipt.ids


def _size_on_sqlite(path: Path, count: int) -> float:
    with Memory.open(path) as memory:
        _fill(memory, count)
    connection = open_bare(path)
    marks = ", ".join("?" * len(_INDEX))
    row = connection.execute(
        f"SELECT sum(pgsize) FROM dbstat WHERE name IN ({marks})", _INDEX
    ).fetchone()
    connection.close()
    return float(row[0]) / count


def _size_on_postgres(url: str, count: int) -> float:
    with Memory.open(url) as memory:
        _fill(memory, count)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM")
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(('engrain.' || name)::regclass)) "
            "FROM unnest(%s::text[]) AS name",
            [list(_INDEX)],
        ).fetchone()
    assert row is not None
    return float(row[0]) / count


def _time_forgetting(path: Path) -> int:
    with Memory.open(path) as memory:
        _, ids = append_settled(memory, ANA, make_episodes(_A_SCOPE))
        began = time.perf_counter_ns()
        memory.episodes.tombstone(ANA, ids[:_ERASED])
        return time.perf_counter_ns() - began
