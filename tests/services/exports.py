"""Files of other programs with words that a test chooses, and what a scope holds of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from engrain import Memory, Scope

ANA = Scope(org="acme", user="ana")


def conversation(name: str, *texts: str, **fields: Any) -> dict[str, Any]:
    """A conversation of Claude.ai's export: person and assistant in turn."""
    messages = [
        {"uuid": f"{name}-{at}", "sender": ("human", "assistant")[at % 2], "text": text}
        for at, text in enumerate(texts)
    ]
    return {"uuid": name, "name": f"talk {name}", "chat_messages": messages, **fields}


def talk(name: str, turns: int) -> dict[str, Any]:
    """A conversation of that many turns, no two of its messages alike."""
    return conversation(name, *(f"{name} says {at}: the kiln" for at in range(2 * turns)))


def write_export(path: Path, *conversations: object) -> Path:
    """Claude.ai's `conversations.json` at `path`."""
    path.write_text(json.dumps(conversations), "utf-8")
    return path


def code_line(number: int, text: str, *, session: str = "s", **fields: Any) -> dict[str, Any]:
    """A line of a Claude Code transcript: odd numbers are the person's."""
    role = "user" if number % 2 else "assistant"
    return {
        "type": role,
        "uuid": f"{session}-{number}",
        "parentUuid": f"{session}-{number - 1}" if number > 1 else None,
        "sessionId": session,
        "timestamp": "2026-04-01T08:00:00Z",
        "message": {"id": f"msg-{session}-{number}", "role": role, "content": text},
        **fields,
    }


def write_lines(path: Path, *lines: object) -> Path:
    """JSON lines at `path`; what is text already stands there as it is."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    return path


def texts_of(memory: Memory, scope: Scope = ANA) -> dict[str | None, list[str]]:
    """The texts of every session of the scope, by its title; every chain is verified."""
    found: dict[str | None, list[str]] = {}
    for session in memory.sessions.list(scope, limit=1_000).items:
        events = list(memory.sessions.iter_events(scope, session.id))
        assert [stored.sequence for stored in events] == list(range(1, len(events) + 1))
        assert memory.sessions.verify(scope, session.id).event_count == len(events)
        assert session.title not in found, "a session twice"
        found[session.title] = [stored.event.text for stored in events]
    return found


def episode_texts(memory: Memory, scope: Scope = ANA) -> Counter[str]:
    """How often each text stands among the scope's episodes."""
    return Counter(one.text for one in memory.episodes.list(scope, limit=1_000).items)
