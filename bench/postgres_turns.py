"""PostgreSQL: 16 clients on 16 sessions, against bare inserts of the same bytes by as many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg

from engrain import Memory
from postgres_server import empty_database, server_version
from report import Goal, Section, lines_of
from run import Run
from timing import interleave, median

_CLIENTS = 16
_ROUNDS = 20
_WARM_UP = 3
_BLOCK = 20
_NAMES = {
    "bare": "bare inserts, 16 clients",
    "pipelined": "the same in a pipeline",
    "engrain": "Engrain, 16 clients on 16 sessions",
}


class Clients:
    """Processes with a connection each. A block is a round of all of them at once."""

    def __init__(self, url: str, turns_max: int) -> None:
        self._processes = [_start(url, number, turns_max) for number in range(_CLIENTS)]
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def run(self, name: str, count: int) -> tuple[list[int], float]:
        """Nanoseconds of every turn, and turns/s of all clients together."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{name} {count}\n")
            process.stdin.flush()
        answers: list[list[int]] = []
        for process in self._processes:
            assert process.stdout is not None
            answers.append(json.loads(process.stdout.readline()))
        began, ended = min(one[0] for one in answers), max(one[1] for one in answers)
        taken = [spent for answer in answers for spent in answer[2:]]
        return taken, len(taken) / (ended - began) * 1e9

    def close(self) -> None:
        for process in self._processes:
            process.communicate()


def _start(url: str, number: int, turns_max: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            str(Path(__file__).with_name("postgres_client.py")),
            url,
            str(number),
            str(turns_max),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class Contestant:
    """One kind of turn, run by all clients."""

    def __init__(self, clients: Clients, name: str) -> None:
        self._clients = clients
        self._name = name
        self.turns_per_s: list[float] = []

    def block(self, count: int) -> list[int]:
        taken, speed = self._clients.run(self._name, count)
        self.turns_per_s.append(speed)
        return taken


def measure(run: Run) -> Section:
    """Every kind of turn, round about, on a server with its usual durability."""
    rounds = run.rounds(_ROUNDS)
    with empty_database(run.work) as url:
        Memory.open(url).close()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE bare (event_key bigint PRIMARY KEY, payload bytea NOT NULL)"
            )
        clients = Clients(url, (rounds + _WARM_UP) * _BLOCK)
        try:
            contestants = {name: Contestant(clients, key) for key, name in _NAMES.items()}
            taken = interleave(contestants, rounds=rounds, block=_BLOCK, warm_up=_WARM_UP)
        finally:
            clients.close()
        version = server_version(url)
    bare, pipelined, ours = (median(one.turns_per_s[_WARM_UP:]) for one in contestants.values())
    return Section(
        "PostgreSQL",
        f"Turns of 4 events of 1 KB, {_CLIENTS} processes. PostgreSQL {version}, durable commits. "
        "Bare inserts are prepared, six statements a turn, a round trip each as pgbench does it.",
        lines_of(taken, _NAMES["bare"]),
        [Goal("turns/s of 16 clients against bare inserts", ours / bare, 0.5, at_least=True)],
        [
            f"Bare inserts: {bare:,.0f} turns/s, {pipelined:,.0f} in a pipeline of one round trip. "
            f"Engrain: {ours:,.0f} turns/s, {ours / pipelined:.2f} × those in a pipeline."
        ],
    )
