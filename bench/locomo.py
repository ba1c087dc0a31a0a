"""Reads LoCoMo's questions and what they rest on. Its turns come in through the importer.

Evidence strings are dirty ("D8:6; D9:17", "D30:05", several ids in one string, or none), so ids are
looked for rather than parsed, and compared by their numbers.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
_TURN_ID = re.compile(r"D:?(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")

TurnId = tuple[int, int]
"""(session, turn), as `D12:3` names them."""


@dataclass(frozen=True)
class Question:
    """A question with the turns that hold its answer; `unknown` evidence names no turn."""

    text: str
    category: int
    evidence: frozenset[TurnId]
    unknown: int


@dataclass(frozen=True)
class Conversation:
    """One sample: its questions, and the words of each turn as the importer keeps them."""

    name: str
    questions: tuple[Question, ...]
    turn_ids: tuple[TurnId, ...]
    record: dict[str, Any]

    @property
    def scored(self) -> list[Question]:
        """Questions of categories 1 to 4 with at least one known turn of evidence."""
        return [one for one in self.questions if one.category in CATEGORIES and one.evidence]


def read_locomo(path: Path) -> list[Conversation]:
    """The conversations of a LoCoMo file: a list of samples, or one."""
    found = json.loads(path.read_bytes())
    samples = found if isinstance(found, list) else [found]
    return [_conversation(sample, at) for at, sample in enumerate(samples, 1)]


def _conversation(sample: dict[str, Any], at: int) -> Conversation:
    turn_ids = tuple(
        turn
        for key, turns in sample["conversation"].items()
        if _SESSION.fullmatch(key) and isinstance(turns, list)
        for said in turns
        for turn in _turn_ids(str(said.get("dia_id", "")))
    )
    known = frozenset(turn_ids)
    questions = tuple(_question(one, known) for one in sample.get("qa", ()))
    return Conversation(str(sample.get("sample_id", at)), questions, turn_ids, sample)


def _question(record: dict[str, Any], known: frozenset[TurnId]) -> Question:
    evidence = record.get("evidence") or ()
    texts = [evidence] if isinstance(evidence, str) else [str(one) for one in evidence]
    named = {turn for text in texts for turn in _turn_ids(text)}
    return Question(
        text=str(record.get("question", "")),
        category=int(record.get("category", 0)),
        evidence=frozenset(named & known),
        unknown=len(named - known),
    )


def _turn_ids(text: str) -> list[TurnId]:
    return [(int(session), int(turn)) for session, turn in _TURN_ID.findall(text)]
