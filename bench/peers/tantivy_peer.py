"""Tantivy: one index of all scopes, each query joined with its scope's term."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import tantivy

_COMMIT = 1_000
"""Documents a commit: many for a service that makes each durable, so it is to Tantivy's favour."""


class TantivySearch:
    """BM25 over the words of a query (any of them), inside one scope, with the texts of the hits.

    `episodes` holds a line of JSON for each episode: [scope, text]; `queries` a list of
    [scope, query]. The index is kept in `directory` and built when it is not there.
    """

    def __init__(self, directory: str, episodes: str, queries: str, limit: int) -> None:
        builder = tantivy.SchemaBuilder()
        builder.add_unsigned_field("scope", indexed=True, fast=True)
        builder.add_text_field("text", stored=True, tokenizer_name="en_stem")
        self._schema = builder.build()
        self._index = self._open(Path(directory), episodes)
        self._searcher = self._index.searcher()
        self._queries: list[tuple[int, str]] = json.loads(Path(queries).read_text())
        self._limit = limit
        self._next = 0

    def _open(self, directory: Path, episodes: str) -> tantivy.Index:
        done = directory / "done"
        if not done.exists():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            self._build(directory, episodes)
            done.touch()
        return tantivy.Index(self._schema, path=str(directory))

    def _build(self, directory: Path, episodes: str) -> None:
        index = tantivy.Index(self._schema, path=str(directory))
        writer = index.writer(heap_size=256 << 20, num_threads=1)
        for number, (scope, text) in enumerate(_read(episodes), 1):
            document = tantivy.Document(text=text)
            document.add_unsigned("scope", scope)
            writer.add_document(document)
            if number % _COMMIT == 0:
                writer.commit()
        writer.commit()
        writer.wait_merging_threads()

    def block(self, count: int) -> list[int]:
        taken = []
        for _ in range(count):
            scope, words = self._queries[self._next % len(self._queries)]
            self._next += 1
            began = time.perf_counter_ns()
            self._search(scope, words)
            taken.append(time.perf_counter_ns() - began)
        return taken

    def _search(self, scope: int, words: str) -> list[tuple[float, str]]:
        inside = tantivy.Query.term_query(self._schema, "scope", scope)
        asked = self._index.parse_query(words, ["text"])
        both = [
            (tantivy.Occur.Must, tantivy.Query.const_score_query(inside, 0.0)),
            (tantivy.Occur.Must, asked),
        ]
        hits = self._searcher.search(
            tantivy.Query.boolean_query(both), limit=self._limit, count=False
        ).hits
        return [(score, self._searcher.doc(at)["text"][0]) for score, at in hits]

    def found(self) -> int:
        """Hits of all queries: that they find something is part of the comparison."""
        return sum(len(self._search(scope, words)) for scope, words in self._queries)


def _read(path: str) -> Iterator[tuple[int, str]]:
    with Path(path).open() as lines:
        for line in lines:
            scope, text = json.loads(line)
            yield scope, text


CONTESTANTS = {"tantivy_search": TantivySearch}
