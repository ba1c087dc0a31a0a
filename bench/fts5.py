"""SQLite FTS5 over the same turns, as people use it: any of the question's words, best bm25 first.

Each conversation has a table of its own, so it is spared the cost and the noise of the others, and
the words of speaker and date stand beside the text, as Engrain's terms of them do.
"""

from __future__ import annotations

import re

import apsw

from engrain.rules.folding import fold
from engrain.rules.stopwords import STOPWORDS
from locomo import Conversation, TurnId

_WORDS = re.compile(r"\w+")


class Fts5:
    """One conversation in memory; `without_function_words` leaves Engrain's list out of queries."""

    def __init__(
        self, conversation: Conversation, tokenizer: str, *, without_function_words: bool = False
    ) -> None:
        self._ids = [turn.id for turn in conversation.turns]
        self._left_out = STOPWORDS if without_function_words else frozenset[str]()
        self._database = apsw.Connection(":memory:")
        self._database.execute(f"CREATE VIRTUAL TABLE said USING fts5(x, tokenize='{tokenizer}')")
        self._database.executemany(
            "INSERT INTO said (rowid, x) VALUES (?, ?)",
            [
                (at, f"{turn.speaker}: {turn.text} {turn.date}")
                for at, turn in enumerate(conversation.turns)
            ],
        )

    def search(self, question: str, limit: int) -> list[TurnId]:
        """The best turns, best first."""
        words = dict.fromkeys(_WORDS.findall(fold(question)))
        wanted = " OR ".join(f'"{word}"' for word in words if word not in self._left_out)
        if not wanted:
            return []
        rows = self._database.execute(
            "SELECT rowid FROM said WHERE said MATCH ? ORDER BY bm25(said), rowid LIMIT ?",
            (wanted, limit),
        )
        return [self._ids[at] for (at,) in rows]
