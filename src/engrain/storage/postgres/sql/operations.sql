-- name: find
SELECT 'start' AS verb, s.request_digest, s.session_id, 0 AS first_sequence, 0 AS last_sequence,
    s.created_at AS recorded_at
FROM sessions s WHERE s.scope_key = :scope_key AND s.operation_id = :operation_id
UNION ALL
SELECT 'append', b.request_digest, s.session_id, b.first_sequence, b.last_sequence,
    b.recorded_at
FROM batches b JOIN sessions s ON s.scope_key = b.scope_key AND s.session_key = b.session_key
WHERE b.scope_key = :scope_key AND b.operation_id = :operation_id
UNION ALL
SELECT o.verb, o.request_digest, s.session_id, 0, 0, o.recorded_at
FROM operations o JOIN sessions s ON s.scope_key = o.scope_key
    AND s.session_key = o.session_key
WHERE o.scope_key = :scope_key AND o.operation_id = :operation_id
LIMIT 1;

-- name: add
INSERT INTO operations (scope_key, operation_id, verb, session_key, request_digest, recorded_at)
VALUES (:scope_key, :operation_id, :verb, :session_key, :request_digest, :recorded_at);
