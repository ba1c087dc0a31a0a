-- name: lock
SELECT session_key FROM sessions WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: next_key
SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'sessions'), 0), 0) + 1
    AS session_key
FROM scopes WHERE scope_key = :scope_key;

-- name: add
INSERT INTO sessions (scope_key, session_key, session_id, workspace_key, title, created_at,
    opened_at, updated_at, link, source_mark, forked_from, forked_sequence, operation_id,
    request_digest)
VALUES (:scope_key, :session_key, :session_id, :workspace_key, :title, :now, :now, :now, :link,
    :source_mark, :forked_from, :forked_sequence, :operation_id, :request_digest);

-- name: find_key
SELECT session_key, workspace_key, link, last_sequence FROM sessions
WHERE scope_key = :scope_key AND session_id = :session_id;

-- name: read
SELECT s.session_id, s.title, w.identity, w.name, s.created_at, s.opened_at, s.updated_at,
    s.last_sequence, s.lease_digest IS NOT NULL AS is_leased, s.lease_deadline, s.forked_from,
    s.forked_sequence
FROM sessions s
JOIN workspaces w ON w.scope_key = s.scope_key AND w.workspace_key = s.workspace_key
WHERE s.scope_key = :scope_key AND s.session_id = :session_id;

-- name: find_source
SELECT session_id FROM sessions WHERE scope_key = :scope_key AND source_mark = :source_mark;

-- name: list
SELECT s.session_id, s.title, w.identity, w.name, s.created_at, s.opened_at, s.updated_at,
    s.last_sequence, s.lease_digest IS NOT NULL AS is_leased, s.lease_deadline, s.forked_from,
    s.forked_sequence
FROM sessions s
JOIN workspaces w ON w.scope_key = s.scope_key AND w.workspace_key = s.workspace_key
WHERE s.scope_key = :scope_key
    AND (s.opened_at, s.session_id) < (:before_opened_at, :before_session_id)
ORDER BY s.opened_at DESC, s.session_id DESC
LIMIT :limit;

-- name: list_workspace
SELECT s.session_id, s.title, w.identity, w.name, s.created_at, s.opened_at, s.updated_at,
    s.last_sequence, s.lease_digest IS NOT NULL AS is_leased, s.lease_deadline, s.forked_from,
    s.forked_sequence
FROM sessions s
JOIN workspaces w ON w.scope_key = s.scope_key AND w.workspace_key = s.workspace_key
WHERE s.scope_key = :scope_key AND s.workspace_key = :workspace_key
    AND (s.opened_at, s.session_id) < (:before_opened_at, :before_session_id)
ORDER BY s.opened_at DESC, s.session_id DESC
LIMIT :limit;

-- name: set_title
UPDATE sessions SET title = :title
WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: read_extraction
SELECT extracted_through, episode_count FROM sessions
WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: set_extraction
UPDATE sessions SET extracted_through = :extracted_through, episode_count = :episode_count
WHERE scope_key = :scope_key AND session_key = :session_key;
