"""Forks: a new session whose history is a verified prefix of another's.

Payloads, salts and commitments are taken over as they are; the new session has a chain of its own.
What was forgotten in the source stays forgotten in the fork.
"""

from __future__ import annotations

from engrain.contracts import limits
from engrain.contracts.errors import Corrupt, InvalidValue, LimitExceeded, NotFound
from engrain.contracts.forks import ForkRequest
from engrain.contracts.ids import Ids, OperationId, ScopeKey, SessionId, SessionKey
from engrain.contracts.scope import Scope
from engrain.contracts.sessions import Session
from engrain.rules.canonical import canonical_bytes
from engrain.rules.chain import batch_link, genesis_link
from engrain.rules.identity import request_digest
from engrain.storage.database import Database, Row, Writer
from engrain.storage.rows import read_session
from engrain.storage.stores.history import Batch, ChainVerifier, EventRow, iter_batches
from engrain.storage.stores.operations import acknowledging, find_operation, repeated
from engrain.storage.stores.scopes import Scopes
from engrain.storage.stores.sessions import NewSession, add_session, check_title, resolve
from engrain.storage.stores.snapshots import add_snapshot, canonical_form, encode_snapshot

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
        _check_request(request)
        known, key = resolve(self._database, self._scopes, scope, session_id)
        snapshot = None if request.snapshot is None else encode_snapshot(request.snapshot)
        digest = _digest(known.secret, session_id, request, snapshot)
        operation = operation_id or OperationId(self._ids.uuid7())
        fork_id = SessionId(self._ids.uuid7())
        is_known = operation_id is not None and self._is_known(known.key, operation)
        history = [] if is_known else self._read_prefix(session_id, key, request.through)

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
            self._copy(writer, fork_key, fork_id, _without_forgotten(writer, key, history))
            if snapshot is not None:
                key_of_fork = {"scope_key": fork_key.scope, "session_key": fork_key.session}
                add_snapshot(writer, key_of_fork, snapshot)
            return _read(writer, key, fork_id)

        with acknowledging(operation):
            row = self._database.write(known.key, body, size=_payload_bytes(history))
        assert row is not None
        return read_session(row)

    def _is_known(self, scope: ScopeKey, operation_id: OperationId) -> bool:
        """Whether the answer stands already, so that the source need not be read for it."""
        with self._database.read() as reader:
            return find_operation(reader, scope, operation_id) is not None

    def _read_prefix(self, session_id: SessionId, key: SessionKey, through: int | None) -> History:
        """The batches up to `through`, verified; nothing past them is looked at but a header."""
        where = {"scope_key": key.scope, "session_key": key.session}
        with self._database.read() as reader:
            head = reader.one("transcript.head", **where)
        if head is None:
            raise NotFound("session", session_id)
        end = head[0] if through is None else through
        if end > head[0]:
            raise _not_a_turns_end()
        if end > limits.replay_events_max:
            raise LimitExceeded("replay_events_max", limits.replay_events_max, end)
        verifier = ChainVerifier(session_id)
        history = self._verified(key, end, verifier)
        if end == head[0] and verifier.link != head[1]:
            raise Corrupt("the session's head does not end its chain")
        if end < head[0] and self._splits_turn(key, end):
            raise _not_a_turns_end()
        return history

    def _verified(self, key: SessionKey, end: int, verifier: ChainVerifier) -> History:
        history: History = []
        size = 0
        if end:
            for batch, events in iter_batches(self._database, key):
                if batch[1] > end:
                    raise _not_a_turns_end()
                verifier.feed([batch], events)
                history.append((batch, events))
                size += _payload_bytes([(batch, events)])
                if size > limits.replay_bytes_max:
                    raise LimitExceeded("replay_bytes_max", limits.replay_bytes_max)
                if batch[1] == end:
                    break
        if verifier.event_count != end:
            raise Corrupt(f"events {verifier.event_count + 1} to {end} are not there")
        return history

    def _splits_turn(self, key: SessionKey, end: int) -> bool:
        """Whether the event after `end` goes on with an agent turn that began before."""
        where = {"scope_key": key.scope, "session_key": key.session}
        with self._database.read() as reader:
            following = reader.one("transcript.turn_after", sequence=end + 1, **where)
        return following is not None and following[0] <= end

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


def _check_request(request: ForkRequest) -> None:
    check_title(request.title)
    through = 0 if request.through is None else request.through
    if type(through) is not int or not 0 <= through <= limits.json_integer_max:
        raise _not_a_turns_end()


def _not_a_turns_end() -> InvalidValue:
    return InvalidValue("through", "must be the last sequence of an agent turn")


def _digest(
    secret: bytes, session_id: SessionId, request: ForkRequest, snapshot: bytes | None
) -> bytes:
    asked = canonical_bytes([request.through, request.title])
    made_with = b"" if snapshot is None else canonical_form(snapshot)
    return request_digest(secret, "start", (session_id.bytes, asked, made_with))


def _without_forgotten(writer: Writer, key: SessionKey, history: History) -> History:
    """The history less what was forgotten since it was read; the source stays locked from here."""
    where = {"scope_key": key.scope, "session_key": key.session}
    writer.one("sessions.lock", **where)
    through = history[-1][0][1] if history else 0
    forgotten = {row[0] for row in writer.all("transcript.list_erased", through=through, **where)}
    return [
        (batch, [(*row[:4], None, None) if row[0] in forgotten else row for row in events])
        for batch, events in history
    ]


def _payload_bytes(history: History) -> int:
    return sum(len(row[5] or b"") for _, events in history for row in events)


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
