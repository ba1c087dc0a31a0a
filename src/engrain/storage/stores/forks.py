"""Forks: a new session whose history is a verified prefix of another's.

Payloads, salts and commitments are taken over as they are; the new session has a chain of its own.
What was forgotten in the source stays forgotten in the fork.
"""

from __future__ import annotations

from engrain.contracts.errors import InvalidValue, NotFound
from engrain.contracts.forks import ForkRequest
from engrain.contracts.ids import Ids, OperationId, SessionId, SessionKey
from engrain.contracts.scope import Scope
from engrain.contracts.sessions import Session
from engrain.rules.canonical import canonical_bytes
from engrain.rules.chain import batch_link, genesis_link
from engrain.rules.identity import request_digest
from engrain.storage.database import Database, Row, Writer
from engrain.storage.rows import read_session
from engrain.storage.stores.history import Batch, ChainVerifier, EventRow, iter_batches
from engrain.storage.stores.operations import acknowledging, repeated
from engrain.storage.stores.scopes import Scopes
from engrain.storage.stores.sessions import NewSession, add_session, check_title, resolve
from engrain.storage.stores.snapshots import add_snapshot, encode_snapshot

History = list[tuple[Batch, list[EventRow]]]


class SqlForkStore:
    """Implements `ForkStore` on either engine."""

    def __init__(self, database: Database, scopes: Scopes, ids: Ids) -> None:
        self._database = database
        self._scopes = scopes
        self._ids = ids

    def fork(
        self,
        scope: Scope,
        session_id: SessionId,
        request: ForkRequest,
        *,
        operation_id: OperationId | None = None,
    ) -> Session:
        check_title(request.title)
        known, key = resolve(self._database, self._scopes, scope, session_id)
        snapshot = None if request.snapshot is None else encode_snapshot(request.snapshot)
        parts = (
            session_id.bytes,
            canonical_bytes([request.through, request.title]),
            snapshot or b"",
        )
        digest = request_digest(known.secret, "start", parts)
        operation = operation_id or OperationId(self._ids.uuid7())
        fork_id = SessionId(self._ids.uuid7())
        history = self._read_prefix(session_id, key, request.through)

        def body(writer: Writer) -> Row | None:
            found = operation_id and repeated(writer, known.key, operation, "start", digest)
            if found:
                return _read(writer, key, SessionId(found.session_id))
            source = writer.one(
                "sessions.find_key", scope_key=key.scope, session_id=session_id.bytes
            )
            if source is None:
                raise NotFound("session", session_id)
            new = NewSession(
                session_id=fork_id,
                workspace_key=source[1],
                title=request.title,
                operation_id=operation,
                request_digest=digest,
                forked_from=session_id.bytes,
                forked_sequence=history[-1][0][1] if history else 0,
            )
            fork_key = add_session(writer, known.key, new)
            self._copy(writer, fork_key, fork_id, history)
            if snapshot is not None:
                key_of_fork = {"scope_key": fork_key.scope, "session_key": fork_key.session}
                add_snapshot(writer, key_of_fork, snapshot)
            return _read(writer, key, fork_id)

        with acknowledging(operation):
            row = self._database.write(known.key, body)
        assert row is not None
        return read_session(row)

    def _read_prefix(self, session_id: SessionId, key: SessionKey, through: int | None) -> History:
        verifier = ChainVerifier(session_id)
        history: History = []
        for batch, events in iter_batches(self._database, key):
            verifier.feed(batch, events)
            history.append((batch, events))
        return history if through is None else _cut(history, through)

    def _copy(self, writer: Writer, key: SessionKey, fork_id: SessionId, history: History) -> None:
        link = genesis_link(fork_id)
        where = {"scope_key": key.scope, "session_key": key.session}
        for batch, events in history:
            first, last, recorded_at = batch[:3]
            operation_id = self._ids.uuid7().bytes
            headers = [(kind, turn, commitment) for _, turn, kind, commitment, _, _ in events]
            link = batch_link(link, fork_id, operation_id, first, recorded_at, headers)
            writer.run_many("transcript.add_event", [_event(where, row) for row in events])
            writer.run(
                "transcript.add_batch",
                first_sequence=first,
                last_sequence=last,
                recorded_at=recorded_at,
                link=link,
                operation_id=operation_id,
                request_digest=b"fork",
                **where,
            )
        if history:
            last = history[-1][0][1]
            writer.run(
                "transcript.advance",
                last_sequence=last,
                link=link,
                now=writer.now_us,
                deadline=0,
                **where,
            )


def _cut(history: History, through: int) -> History:
    """The prefix that ends at `through`, which must be the end of a batch and of an agent turn."""
    kept = [entry for entry in history if entry[0][1] <= through]
    is_whole = through == (kept[-1][0][1] if kept else 0)
    rest = history[len(kept) :]
    splits_turn = bool(kept and rest and rest[0][1][0][1] <= through)
    if not is_whole or splits_turn:
        raise InvalidValue("through", "must be the last sequence of an agent turn")
    return kept


def _event(where: dict[str, int], row: EventRow) -> dict[str, object]:
    sequence, turn, kind, commitment, salt, payload = row
    return {
        **where,
        "sequence": sequence,
        "turn": turn,
        "kind": kind,
        "commitment": commitment,
        "salt": salt,
        "source_mark": None,
        "payload": payload,
    }


def _read(writer: Writer, key: SessionKey, session_id: SessionId) -> Row | None:
    return writer.one("sessions.read", scope_key=key.scope, session_id=session_id.bytes)
