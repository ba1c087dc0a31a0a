"""Measures what recall finds: `make eval DATA=path [JSON=1]` on a LoCoMo file.

Each conversation is a scope of its own, and its turns compete with one another alone. They come in
through the importer and are asked for through `memory.episodes.search`, without a model. Beside it
SQLite FTS5 answers the same questions over the same turns in the same process.

With --json the last line is one JSON object. --write NAME keeps table and object in bench/results.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from engrain import Hit, Memory, Scope
from fts5 import Fts5
from locomo import (
    CATEGORIES,
    Conversation,
    Question,
    TurnId,
    read_locomo,
    turns_of_episodes,
)
from metrics import ndcg_at, recall_at
from report import describe_machine
from timing import percentile

DEPTH = 10
_MS = 1_000_000
_FACTS = ("processor", "system", "load before", "Python", "SQLite")
_RESULTS = Path(__file__).parent / "results"

Search = Callable[[Question], list[TurnId]]


@dataclass(frozen=True)
class Answer:
    """How one question went."""

    conversation: str
    number: int
    category: int
    recall_at_5: float
    recall_at_10: float
    ndcg_at_10: float
    session_recall_at_10: float
    taken_ns: int


@dataclass(frozen=True)
class Scores:
    """Means over questions, and the time of one."""

    questions: int
    evidence_recall_at_5: float
    evidence_recall_at_10: float
    ndcg_at_10: float
    session_recall_at_10: float
    query_p50_ms: float
    query_p95_ms: float


@dataclass(frozen=True)
class Stored:
    """What keeping the turns cost."""

    turns: int
    import_ms_per_turn: float
    bytes_per_turn: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="a file in LoCoMo's format")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--write", metavar="NAME", help="keep the results under this name")
    asked = parser.parse_args()
    conversations = read_locomo(asked.data)
    with tempfile.TemporaryDirectory(prefix="engrain-eval-") as place:
        machine = describe_machine(Path(place))
        facts = {name: machine[name] for name in _FACTS} | {"engrain": version("engrain")}
        stored, answers = evaluate(conversations, Path(place))
    summary = summarise(conversations, stored, answers)
    table = as_markdown(asked.data.name, summary, facts)
    print(table)
    if asked.write:
        _write(asked.write, table, {**summary, "machine": facts})
    if asked.json:
        print(json.dumps(summary))


def evaluate(
    conversations: Sequence[Conversation], place: Path
) -> tuple[Stored, dict[str, list[Answer]]]:
    """Imports everything, then asks every question of each contestant."""
    database = place / "memory.sqlite3"
    answers: dict[str, list[Answer]] = {}
    with Memory.open(database) as memory:
        began = time.perf_counter_ns()
        for one in conversations:
            _import(memory, one, place)
        taken_ns = time.perf_counter_ns() - began
        for one in conversations:
            for name, search in _contestants(memory, one).items():
                answers.setdefault(name, []).extend(_ask(one, search))
    turns = sum(len(one.turns) for one in conversations)
    stored = Stored(turns, taken_ns / turns / _MS, database.stat().st_size // turns)
    return stored, answers


def _scope(conversation: Conversation) -> Scope:
    return Scope(org="evaluation", user=conversation.name)


def _import(memory: Memory, conversation: Conversation, place: Path) -> None:
    file = place / f"{conversation.name}.json"
    file.write_text(json.dumps([conversation.sample]))
    memory.imports.run(_scope(conversation), file, format="locomo")


def _contestants(memory: Memory, conversation: Conversation) -> dict[str, Search]:
    turn_of = turns_of_episodes(memory, _scope(conversation), conversation)

    def engrain(question: Question) -> list[TurnId]:
        hits = memory.episodes.search(_scope(conversation), question.text, limit=DEPTH)
        return [_turn(hit, question) for hit in hits]

    def _turn(hit: Hit, question: Question) -> TurnId:
        """A hit stands for all its twins; the one that was asked for counts."""
        turns = [turn_of[hit.episode.id], *(turn_of[source] for source in hit.sources)]
        return next((turn for turn in turns if turn in question.evidence), turns[0])

    def fts5(tokenizer: str, *, without: bool = False) -> Search:
        table = Fts5(conversation, tokenizer, without_function_words=without)
        return lambda question: table.search(question.text, DEPTH)

    return {
        "engrain": engrain,
        "fts5_unicode61": fts5("unicode61"),
        "fts5_porter": fts5("porter unicode61"),
        "fts5_porter_without_function_words": fts5("porter unicode61", without=True),
    }


def _ask(conversation: Conversation, search: Search) -> Iterator[Answer]:
    for number, question in enumerate(conversation.scored):
        began = time.perf_counter_ns()
        turns = search(question)
        taken_ns = time.perf_counter_ns() - began
        sessions = {session for session, _ in question.evidence}
        yield Answer(
            conversation=conversation.name,
            number=number,
            category=question.category,
            recall_at_5=recall_at(5, turns, question.evidence),
            recall_at_10=recall_at(10, turns, question.evidence),
            ndcg_at_10=ndcg_at(10, turns, question.evidence),
            session_recall_at_10=recall_at(10, [session for session, _ in turns], sessions),
            taken_ns=taken_ns,
        )


def score(answers: Sequence[Answer]) -> Scores:
    taken = [one.taken_ns / _MS for one in answers]
    return Scores(
        questions=len(answers),
        evidence_recall_at_5=fmean(one.recall_at_5 for one in answers),
        evidence_recall_at_10=fmean(one.recall_at_10 for one in answers),
        ndcg_at_10=fmean(one.ndcg_at_10 for one in answers),
        session_recall_at_10=fmean(one.session_recall_at_10 for one in answers),
        query_p50_ms=percentile(taken, 0.5),
        query_p95_ms=percentile(taken, 0.95),
    )


def summarise(
    conversations: Sequence[Conversation], stored: Stored, answers: dict[str, list[Answer]]
) -> dict[str, Any]:
    """Engrain's own scores at the top, and every part of the questions below."""
    own = answers["engrain"]
    parts = _parts(conversations)
    asked = [one for each in conversations for one in each.questions if one.category in CATEGORIES]
    return {
        **asdict(score(own)),
        **asdict(stored),
        "conversations": len(conversations),
        "questions_without_known_evidence": sum(not one.evidence for one in asked),
        "evidence_that_names_no_turn": sum(one.unknown for one in asked),
        "parts": {
            name: {who: asdict(score(list(filter(holds, each)))) for who, each in answers.items()}
            for name, holds in parts.items()
            if any(map(holds, own))
        },
        "peers": {who: asdict(score(each)) for who, each in answers.items() if who != "engrain"},
    }


def _parts(conversations: Sequence[Conversation]) -> dict[str, Callable[[Answer], bool]]:
    """Two halves by conversations, two by questions, and each category."""
    names = [one.name for one in conversations]
    first = frozenset(names[: (len(names) + 1) // 2])
    halves: dict[str, Callable[[Answer], bool]] = {}
    if len(names) > 1:
        halves[f"conversations 1 to {len(first)}"] = lambda one: one.conversation in first
        halves[f"conversations {len(first) + 1} to {len(names)}"] = lambda one: (
            one.conversation not in first
        )
    halves["questions 1, 3, 5, …"] = lambda one: one.number % 2 == 0
    halves["questions 2, 4, 6, …"] = lambda one: one.number % 2 == 1
    by_category = {name: partial(_is_of, kind) for kind, name in CATEGORIES.items()}
    return halves | by_category


def _is_of(category: int, answer: Answer) -> bool:
    return answer.category == category


def as_markdown(name: str, summary: dict[str, Any], facts: dict[str, str]) -> str:
    """The tables for people."""
    peers = {"engrain": summary, **summary["peers"]}
    lines = [
        "# Evaluation: what recall finds without a model",
        "",
        f"`make eval DATA={name}`: {summary['conversations']} conversations, "
        f"{summary['turns']:,} turns, {summary['questions']} questions of categories 1 to 4 "
        f"({summary['questions_without_known_evidence']} without known evidence left out; "
        f"{summary['evidence_that_names_no_turn']} pieces of evidence name no turn). Each "
        "conversation is a scope of its own.",
        "",
        "| | evidence recall@5 | evidence recall@10 | nDCG@10 | session recall@10 "
        "| query p50 | p95 |",
        "|---|---|---|---|---|---|---|",
        *(_peer_row(who, scores) for who, scores in peers.items()),
        "",
        f"Importing took {summary['import_ms_per_turn']:.2f} ms a turn, each durable, and "
        f"{summary['bytes_per_turn']:,} bytes of database a turn (LoCoMo's have "
        "20 to 30 words): the record with its hash chain, the episode and its index. FTS5 keeps "
        "its tables in memory, one for each conversation, and only the words.",
        "",
        "Evidence recall@10 by part:",
        "",
        "| part | questions | " + " | ".join(map(_title, peers)) + " |",
        "|---|---|" + "---|" * len(peers),
        *(_part_row(part, scores, list(peers)) for part, scores in summary["parts"].items()),
        "",
        "; ".join(f"{fact}: {value}" for fact, value in facts.items()) + ".",
    ]
    return "\n".join(lines)


def _title(who: str) -> str:
    return who.replace("_", " ").replace("fts5", "FTS5").replace("engrain", "Engrain")


def _peer_row(who: str, scores: dict[str, Any]) -> str:
    found = " | ".join(
        f"{scores[measure]:.3f}"
        for measure in (
            "evidence_recall_at_5",
            "evidence_recall_at_10",
            "ndcg_at_10",
            "session_recall_at_10",
        )
    )
    return (
        f"| {_title(who)} | {found} | {scores['query_p50_ms']:.2f} ms "
        f"| {scores['query_p95_ms']:.2f} ms |"
    )


def _part_row(part: str, scores: dict[str, Any], order: Sequence[str]) -> str:
    found = " | ".join(f"{scores[who]['evidence_recall_at_10']:.3f}" for who in order)
    return f"| {part} | {scores['engrain']['questions']} | {found} |"


def _write(name: str, table: str, summary: dict[str, Any]) -> None:
    _RESULTS.mkdir(exist_ok=True)
    (_RESULTS / f"{name}.md").write_text(f"{table}\n")
    (_RESULTS / f"{name}.json").write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
