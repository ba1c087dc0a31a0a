"""Reads LoCoMo's questions and what they rest on, and finds its turns again once imported.

Evidence strings are dirty ("D8:6; D9:17", "D30:05", several ids in one string, or none), so ids are
looked for rather than parsed, and compared by their numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engrain import EpisodeId, Memory, Scope
from engrain.contracts.episodes import Episode
from engrain.contracts.sessions import Session

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
_TURN_ID = re.compile(r"D:?(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")
_PAGE = 200

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
class Turn:
    """One turn as the source has it."""

    id: TurnId
    speaker: str
    text: str
    date: str


@dataclass(frozen=True)
class Conversation:
    """One sample of the file."""

    name: str
    sample: dict[str, Any]
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]

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
    turns = tuple(_iter_turns(sample["conversation"]))
    known = frozenset(turn.id for turn in turns)
    questions = tuple(_question(one, known) for one in sample.get("qa", ()))
    return Conversation(str(sample.get("sample_id", at)), sample, turns, questions)


def _iter_turns(conversation: dict[str, Any]) -> Iterator[Turn]:
    for number, key in _session_keys(conversation):
        for place, said in enumerate(conversation[key], 1):
            named = turn_ids(str(said.get("dia_id", "")))
            caption = said.get("blip_caption")
            yield Turn(
                id=named[0] if named else (number, place),
                speaker=str(said.get("speaker", "")),
                text=f"{said.get('text', '')} {caption or ''}".strip(),
                date=str(conversation.get(f"{key}_date_time", "")),
            )


def _session_keys(conversation: dict[str, Any]) -> list[tuple[int, str]]:
    found = ((match, key) for key in conversation if (match := _SESSION.fullmatch(key)))
    return sorted((int(match[1]), key) for match, key in found)


def _question(record: dict[str, Any], known: frozenset[TurnId]) -> Question:
    evidence = record.get("evidence") or ()
    texts = [evidence] if isinstance(evidence, str) else [str(one) for one in evidence]
    named = {turn for text in texts for turn in turn_ids(text)}
    return Question(
        text=str(record.get("question", "")),
        category=int(record.get("category", 0)),
        evidence=frozenset(named & known),
        unknown=len(named - known),
    )


def turn_ids(text: str) -> list[TurnId]:
    """Every turn id in a string."""
    return [(int(session), int(turn)) for session, turn in _TURN_ID.findall(text)]


def turns_of_episodes(
    memory: Memory, scope: Scope, conversation: Conversation
) -> dict[EpisodeId, TurnId]:
    """Which turn each imported episode came from.

    Sessions were begun in the order of the file, and the turn at place n is the event of sequence
    n. A session that holds another number of turns, or an episode that is not a piece of its turn,
    stops the evaluation: it would measure something else.
    """
    by_session = list(_turns_by_session(conversation).values())
    sessions = _sessions(memory, scope)
    if [len(turns) for turns in by_session] != [session.event_count for session in sessions]:
        raise SystemExit(f"{conversation.name}: the import does not line up with the file")
    place = {session.id: at for at, session in enumerate(sessions)}
    found = {}
    for episode in _episodes(memory, scope):
        turn = by_session[place[episode.session_id]][episode.first_sequence - 1]
        if episode.text[:20] not in turn.text and turn.text:
            raise SystemExit(f"{conversation.name}: {turn.id} is not the turn of its episode")
        found[episode.id] = turn.id
    return found


def _turns_by_session(conversation: Conversation) -> dict[int, list[Turn]]:
    grouped: dict[int, list[Turn]] = {}
    for turn in conversation.turns:
        grouped.setdefault(turn.id[0], []).append(turn)
    return grouped


def _sessions(memory: Memory, scope: Scope) -> list[Session]:
    found: list[Session] = []
    cursor = None
    while True:
        page = memory.sessions.list(scope, cursor=cursor, limit=_PAGE)
        found += page.items
        if (cursor := page.next) is None:
            return sorted(found, key=lambda session: (session.created_at, session.id))


def _episodes(memory: Memory, scope: Scope) -> Iterator[Episode]:
    cursor = None
    while True:
        page = memory.episodes.list(scope, cursor=cursor, limit=_PAGE)
        yield from page.items
        if (cursor := page.next) is None:
            return
