"""Below Engrain's durable turn: its rows by its statements, with none of what surrounds them.

No text rule, no pair rule, no lease, no cursor, no identity of the file, no turnstile, no queue, no
receipt. What is left is what SQLite and the hashes cost, so the report shows where a turn's time
goes.
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
from uuid_utils.compat import uuid7

from engrain import Memory, Scope
from engrain.contracts.events import KIND_OF, Event
from engrain.rules.canonical import encode_event
from engrain.rules.chain import SALT_BYTES, batch_link, commit_event
from engrain.storage.sqlite.database import QUERIES
from floors import BareTurns

ANA = Scope(org="bench", user="ana")
_KEY = bytes(32)


class SameRows(BareTurns):
    """Turns in a database of Engrain's, written around it. With `is_hashed` it makes the hashes."""

    def __init__(self, path: Path, *, is_hashed: bool) -> None:
        with Memory.open(path) as memory:
            self._session_id: UUID = memory.sessions.start(ANA).id
        super().__init__(path)
        self._is_hashed = is_hashed
        found = "SELECT scope_key, session_key FROM sessions"
        self._scope_key, self._session_key = self.connection.execute(found).fetchone()

    def append_events(self, events: Sequence[Event], payloads: Sequence[bytes]) -> None:
        """One turn; `payloads` are its events, encoded beforehand, for when nothing is hashed."""
        where = {"scope_key": self._scope_key, "session_key": self._session_key}
        first = self._next
        operation_id, digest, link = _KEY[:8] + first.to_bytes(8), _KEY[:16], _KEY
        made = [(KIND_OF[type(event)], first, _KEY) for event in events]
        salts = [_KEY[:SALT_BYTES]] * len(events)
        if self._is_hashed:
            payloads = [encode_event(event) for event in events]
            operation_id, digest = uuid7().bytes, hmac.digest(_KEY, b"".join(payloads), "sha256")
            salts = [os.urandom(SALT_BYTES) for _ in events]
            made = [
                (kind, first, commit_event(salt, payload))
                for (kind, _, _), salt, payload in zip(made, salts, payloads, strict=True)
            ]
        rows = [
            {
                "sequence": sequence,
                "turn": first,
                "kind": kind,
                "commitment": commitment,
                "salt": salt,
                "source_mark": None,
                "payload": payload,
                **where,
            }
            for sequence, ((kind, _, commitment), salt, payload) in enumerate(
                zip(made, salts, payloads, strict=True), first
            )
        ]
        self.connection.execute("BEGIN IMMEDIATE")
        head = self._query("transcript.head", where).fetchone()
        now = time.time_ns() // 1_000
        if self._is_hashed:
            link = batch_link(head[1], self._session_id, operation_id, first, now, made)
        statement, in_order = QUERIES["transcript.add_event"]
        self.connection.executemany(statement, map(in_order, rows))
        self._next += len(rows)
        batch = {"first_sequence": first, "last_sequence": self._next - 1, "link": link, **where}
        named = {"recorded_at": now, "operation_id": operation_id, "request_digest": digest}
        self._query("transcript.add_batch", {**batch, **named})
        self._query("transcript.advance", {**batch, "now": now, "deadline": now})
        self.connection.execute("COMMIT")
        self.restart_log()

    def _query(self, name: str, parameters: dict[str, Any]) -> apsw.Cursor:
        statement, in_order = QUERIES[name]
        return self.connection.execute(statement, in_order(parameters))
