-- The tables of operation ids share no key, so that two verbs could use one id at once. The lock is
-- taken after the transaction's anchors and held until its end.

-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended(encode(:operation_id, 'hex'), :scope_key)) AS locked;

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
