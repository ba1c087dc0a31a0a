-- A write transaction shuts out every other, so that there is nothing to lock.

-- name: lock
SELECT 1 AS locked WHERE :scope_key IS NOT NULL AND :operation_id IS NOT NULL;

-- name: find
SELECT 'start' AS verb, s.request_digest, s.session_id, 0 AS first_sequence, 0 AS last_sequence,
    s.created_at AS recorded_at
FROM sessions s WHERE s.scope_key = :scope_key AND s.operation_id = :operation_id
UNION ALL
SELECT 'append', b.request_digest, s.session_id, b.batch_key & 4294967295, b.last_sequence,
    b.recorded_at
FROM batches b JOIN sessions s ON s.session_key = b.batch_key >> 32
WHERE b.scope_key = :scope_key AND b.operation_id = :operation_id
UNION ALL
SELECT o.verb, o.request_digest, s.session_id, 0, 0, o.recorded_at
FROM operations o JOIN sessions s ON s.session_key = o.session_key
WHERE o.scope_key = :scope_key AND o.operation_id = :operation_id
LIMIT 1;

-- name: add
INSERT INTO operations (scope_key, operation_id, verb, session_key, request_digest, recorded_at)
VALUES (:scope_key, :operation_id, :verb, :session_key, :request_digest, :recorded_at);
