-- Rows lie by session and sequence. NOT INDEXED keeps the planner from reading a whole scope by
-- the index of another constraint and sorting it; the key itself is still searched.

-- name: head
SELECT last_sequence, link, updated_at, lease_digest, lease_epoch, lease_deadline, open_turn
FROM sessions
WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: advance
UPDATE sessions SET last_sequence = :last_sequence, link = :link, updated_at = :now,
    lease_deadline = :deadline
WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: add_batch
INSERT INTO batches (batch_key, scope_key, last_sequence, recorded_at, link, operation_id,
    request_digest)
VALUES (:session_key << 32 | :first_sequence, :scope_key, :last_sequence, :recorded_at, :link,
    :operation_id, :request_digest);

-- name: add_event
INSERT INTO events (event_key, scope_key, turn, kind, commitment, salt, source_mark, payload)
VALUES (:session_key << 32 | :sequence, :scope_key, :turn, :kind, :commitment, :salt,
    :source_mark, :payload);

-- name: list_batches
SELECT batch_key & 4294967295 AS first_sequence, last_sequence, recorded_at, link, operation_id
FROM batches NOT INDEXED
WHERE batch_key > (:session_key << 32 | :after) AND batch_key <= (:session_key << 32 | 4294967295)
    AND scope_key = :scope_key
ORDER BY batch_key LIMIT :limit;

-- name: batch_of
SELECT batch_key & 4294967295 AS first_sequence, last_sequence, recorded_at, link, operation_id
FROM batches NOT INDEXED
WHERE batch_key > (:session_key << 32) AND batch_key <= (:session_key << 32 | :sequence)
    AND scope_key = :scope_key
ORDER BY batch_key DESC LIMIT 1;

-- name: list_events
SELECT event_key & 4294967295 AS sequence, turn, kind, commitment, salt, payload
FROM events
WHERE event_key > (:session_key << 32 | :after) AND event_key <= (:session_key << 32 | :through)
    AND scope_key = :scope_key
ORDER BY event_key;

-- name: list_payloads
SELECT turn, CASE WHEN salt IS NULL THEN kind END AS erased_kind, payload
FROM events
WHERE event_key > (:session_key << 32 | :after) AND event_key <= (:session_key << 32 | :through)
    AND scope_key = :scope_key
ORDER BY event_key;

-- name: list_erased
SELECT event_key & 4294967295 AS sequence FROM events
WHERE event_key > (:session_key << 32) AND event_key <= (:session_key << 32 | :through)
    AND scope_key = :scope_key AND payload IS NULL;

-- name: list_sources
SELECT source_mark FROM events
WHERE event_key > (:session_key << 32) AND event_key <= (:session_key << 32 | 4294967295)
    AND scope_key = :scope_key AND source_mark IS NOT NULL;

-- name: turn_after
SELECT turn FROM events
WHERE event_key = (:session_key << 32 | :sequence) AND scope_key = :scope_key;

-- name: redact
UPDATE events SET payload = NULL, salt = NULL
WHERE event_key = (:session_key << 32 | :sequence) AND scope_key = :scope_key
    AND payload IS NOT NULL
RETURNING 1 AS redacted;
