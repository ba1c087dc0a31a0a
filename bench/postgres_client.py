"""One client of the PostgreSQL benchmark, a process of its own, at the word of `postgres_turns.py`.

Standard input says `bare 20`, `pipelined 20` or `engrain 20`; the answer is a line of JSON with the
nanoseconds of each of these turns, and when the first began and the last ended by the machine's
steady clock.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

import psycopg

from engrain import Memory
from material import encode_turns, make_turns
from turns import open_writer

INSERT = "INSERT INTO bare (event_key, payload) VALUES (%s, %s)"


def main() -> None:
    """Serves until standard input ends."""
    url, number, turns_max = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    turns = make_turns(turns_max, seed=number)
    bare = BareTurns(url, number, encode_turns(turns))
    with Memory.open(url) as memory, open_writer(memory) as writer:
        contestants: dict[str, Callable[[int], object]] = {
            "bare": bare.append,
            "pipelined": bare.append_in_a_pipeline,
            "engrain": lambda at: writer.append(turns[at]),
        }
        done = dict.fromkeys(contestants, 0)
        print("ready", flush=True)
        for line in sys.stdin:
            name, count = line.split()
            first, done[name] = done[name], done[name] + int(count)
            print(json.dumps(_run(contestants[name], range(first, done[name]))), flush=True)


class BareTurns:
    """Four prepared inserts in one transaction, one round trip for each statement or for all."""

    def __init__(self, url: str, number: int, payloads: Sequence[Sequence[bytes]]) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.prepare_threshold = 0
        self._payloads = payloads
        self._next = number << 32

    def append(self, at: int) -> None:
        """As pgbench runs a script in its mode `prepared`."""
        self._connection.execute("BEGIN")
        for payload in self._payloads[at]:
            self._connection.execute(INSERT, (self._next, payload))
            self._next += 1
        self._connection.execute("COMMIT")

    def append_in_a_pipeline(self, at: int) -> None:
        """The same in one round trip, as no driver does by itself."""
        with self._connection.pipeline():
            self.append(at)


def _run(step: Callable[[int], object], numbers: range) -> list[int]:
    clock = time.perf_counter_ns
    began = clock()
    taken = []
    for number in numbers:
        start = clock()
        step(number)
        taken.append(clock() - start)
    return [began, clock(), *taken]


if __name__ == "__main__":
    main()
