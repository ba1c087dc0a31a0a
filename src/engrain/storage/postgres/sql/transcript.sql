-- name: head
SELECT last_sequence, link, updated_at, lease_digest, lease_epoch, lease_deadline, open_turn
FROM sessions
WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: advance
UPDATE sessions SET last_sequence = :last_sequence, link = :link, updated_at = :now,
    lease_deadline = :deadline
WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: add_batch
INSERT INTO batches (scope_key, session_key, first_sequence, last_sequence, recorded_at, link,
    operation_id, request_digest)
VALUES (:scope_key, :session_key, :first_sequence, :last_sequence, :recorded_at, :link,
    :operation_id, :request_digest);

-- name: add_event
INSERT INTO events (scope_key, session_key, sequence, turn, kind, commitment, salt, source_mark,
    payload)
VALUES (:scope_key, :session_key, :sequence, :turn, :kind, :commitment, :salt, :source_mark,
    :payload);

-- name: list_batches
SELECT first_sequence, last_sequence, recorded_at, link, operation_id
FROM batches
WHERE scope_key = :scope_key AND session_key = :session_key AND first_sequence > :after
ORDER BY first_sequence LIMIT :limit;

-- name: batch_of
SELECT first_sequence, last_sequence, recorded_at, link, operation_id
FROM batches
WHERE scope_key = :scope_key AND session_key = :session_key
    AND first_sequence <= :sequence
ORDER BY first_sequence DESC LIMIT 1;

-- name: list_events
SELECT sequence, turn, kind, commitment, salt, payload
FROM events
WHERE scope_key = :scope_key AND session_key = :session_key
    AND sequence > :after AND sequence <= :through
ORDER BY sequence;

-- name: list_payloads
SELECT turn, CASE WHEN salt IS NULL THEN kind END AS erased_kind, payload
FROM events
WHERE scope_key = :scope_key AND session_key = :session_key
    AND sequence > :after AND sequence <= :through
ORDER BY sequence;

-- name: list_erased
SELECT sequence FROM events
WHERE scope_key = :scope_key AND session_key = :session_key AND sequence <= :through
    AND payload IS NULL;

-- name: list_sources
SELECT source_mark FROM events
WHERE scope_key = :scope_key AND session_key = :session_key AND source_mark IS NOT NULL;

-- name: turn_after
SELECT turn FROM events
WHERE scope_key = :scope_key AND session_key = :session_key
    AND sequence = :sequence;

-- name: redact
UPDATE events SET payload = NULL, salt = NULL
WHERE scope_key = :scope_key AND session_key = :session_key
    AND sequence = :sequence
    AND payload IS NOT NULL
RETURNING 1 AS redacted;
