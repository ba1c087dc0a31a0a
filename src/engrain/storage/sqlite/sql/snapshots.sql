-- name: read
SELECT payload FROM snapshots WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: add
INSERT INTO snapshots (scope_key, session_key, recorded_at, payload)
VALUES (:scope_key, :session_key, :recorded_at, :payload);

-- name: list_all
SELECT scope_key, session_key, payload FROM snapshots
WHERE (scope_key, session_key) > (:scope_key, :session_key)
ORDER BY scope_key, session_key LIMIT :limit;
