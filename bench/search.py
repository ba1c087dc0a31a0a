"""Scoped search: many scopes of 1,000 episodes in one file, each query inside one of them.

The episodes come as users write them: one at a time, those of all scopes mixed, each scope's in
their order. Both sides get them in the same order. Engrain makes each durable by itself and settles
a scope whenever a batch of it is full; the last scopes have 255 more that no job has settled yet.
What is searched is slow to build, so it is kept in the cache, and built anew when the rules of
terms or the schema change.
"""

from __future__ import annotations

import json
import shutil
import sys
from array import array
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib import resources
from pathlib import Path
from random import Random

from engrain import Memory, Scope
from engrain.contracts.episodes import NewEpisode
from engrain.contracts.limits import settle_episodes_max
from material import Words, make_vocabulary
from report import Goal, Section, lines_of, ratio
from run import Run
from timing import Loop, interleave

_SCOPES, _SCOPES_FULL = 100, 1_000
_SCOPES_UNSETTLED = 20
_SETTLED = 4 * settle_episodes_max
_UNSETTLED = 255
_CHARACTERS = 200
_QUERIES = 400
_WORDS = 3
_LIMIT = 10
_COMMON = 50
"""So many of the commonest words are function words, which nobody searches for."""
_ROUNDS = 20
_BLOCK = 50
_SHAPES = ("rules/terms.py", "rules/stems.py", "rules/folding.py", "rules/forward_rows.py")
_SCHEMA = "storage/sqlite/migrations/0001_the_walls.sql"

Query = tuple[int, str]


def measure(run: Run) -> Section:
    """Engrain and Tantivy on the same episodes and queries, settled or not."""
    scopes = _SCOPES_FULL if run.is_full else _SCOPES
    corpus = Corpus(run.cache / f"search-{scopes}-{_shape()}", scopes)
    corpus.build()
    section = Section(
        "Scoped search",
        f"{scopes * _SETTLED:,} episodes of {_CHARACTERS} characters in {scopes:,} scopes, "
        f"{_WORDS} words, {_LIMIT} hits with their texts, each query asked once before.",
    )
    with Memory.open(corpus.database) as memory:
        for name, queries in corpus.queries().items():
            searches = [(_scope(number), words) for number, words in queries]
            ours, theirs = f"Engrain, {name}", f"Tantivy, {name}"
            asked = corpus.directory / "queries.json"
            asked.write_text(json.dumps(queries))
            contestants = {
                theirs: run.peers.open(
                    "tantivy_search",
                    directory=str(corpus.directory / "tantivy"),
                    episodes=str(corpus.episodes),
                    queries=str(asked),
                    limit=_LIMIT,
                ),
                ours: Loop(Search(memory, searches)),
            }
            taken = interleave(
                contestants,
                rounds=run.rounds(_ROUNDS),
                block=_BLOCK,
                warm_up=_QUERIES // _BLOCK,  # each query once, so that no disk is measured
            )
            section.lines += lines_of(taken, theirs)
            section.goals.append(
                Goal(f"scoped search at p95, {name}", ratio(taken, ours, theirs, 0.95), 2.0)
            )
    return section


class Search:
    """One query after the other."""

    def __init__(self, memory: Memory, searches: Sequence[tuple[Scope, str]]) -> None:
        self._memory = memory
        self._searches = searches

    def __call__(self, at: int) -> object:
        scope, words = self._searches[at % len(self._searches)]
        found = self._memory.episodes.search(scope, words, limit=_LIMIT)
        assert found, "each query's words come from an episode of its scope"
        return found


class Corpus:
    """The episodes, in the forms in which both sides search them."""

    def __init__(self, directory: Path, scopes: int) -> None:
        self.directory = directory
        self.database = directory / "engrain.sqlite3"
        self.episodes = directory / "episodes.jsonl"
        self._scopes = scopes
        self._vocabulary = make_vocabulary(20_000)

    def build(self) -> None:
        """Does nothing when it was built before."""
        done = self.directory / "done"
        if done.exists():
            return
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True, mode=0o700)
        print(f"building {self.directory.name} …", file=sys.stderr)
        with Memory.open(self.database) as memory, self.episodes.open("w") as lines:
            sessions = [memory.sessions.start(_scope(it)).id for it in range(self._scopes)]
            texts = [self._texts(number) for number in range(self._scopes)]
            stored = [0] * self._scopes
            for number in self._arrivals():
                scope, text = _scope(number), next(texts[number])
                stored[number] = at = stored[number] + 1
                episode = NewEpisode(text=text, first_sequence=at, last_sequence=at)
                memory.episodes.append(scope, sessions[number], [episode])
                if at % settle_episodes_max == 0:
                    memory.episodes.settle(scope)
                lines.write(json.dumps([number, text]) + "\n")
            for number, count in enumerate(stored):
                assert memory.episodes.unsettled(_scope(number)) == count % settle_episodes_max
        done.touch()

    def _arrivals(self) -> Sequence[int]:
        """The scope of each episode, in the order in which they come."""
        arrivals = array("H")
        for scope in range(self._scopes):
            arrivals.extend([scope] * self._count(scope))
        Random(self._scopes).shuffle(arrivals)
        return arrivals

    def _count(self, scope: int) -> int:
        is_unsettled = scope >= self._scopes - _SCOPES_UNSETTLED
        return _SETTLED + _UNSETTLED * is_unsettled

    def _texts(self, scope: int) -> Iterator[str]:
        words = Words(self._vocabulary, scope)
        return (words.text(_CHARACTERS) for _ in range(self._count(scope)))

    def queries(self) -> dict[str, list[Query]]:
        """Words of an episode of the scope, for settled scopes and for those with a tail."""
        common = frozenset(self._vocabulary[:_COMMON])
        parts = {
            "settled": range(self._scopes - _SCOPES_UNSETTLED),
            f"{_UNSETTLED} unsettled": range(self._scopes - _SCOPES_UNSETTLED, self._scopes),
        }
        return {name: self._queries_in(scopes, common) for name, scopes in parts.items()}

    def _queries_in(self, scopes: range, common: frozenset[str]) -> list[Query]:
        random = Random(len(scopes))
        chosen = random.choices(scopes, k=_QUERIES)
        texts = {scope: list(self._texts(scope)) for scope in sorted(set(chosen))}
        queries = []
        for scope in chosen:
            words = random.choice(texts[scope]).rstrip(".").split()
            rare = sorted({word for word in words[:-1] if word not in common and len(word) > 1})
            queries.append((scope, " ".join(random.sample(rare, min(_WORDS, len(rare))))))
        return queries


def _scope(number: int) -> Scope:
    return Scope(org="bench", user=f"user-{number}")


def _shape() -> str:
    """Changes with whatever decides how episodes are stored and found."""
    package = resources.files("engrain")
    parts = [(package / path).read_bytes() for path in (*_SHAPES, _SCHEMA)]
    return sha256(b"\0".join([Path(__file__).read_bytes(), *parts])).hexdigest()[:8]
