-- name: find
SELECT workspace_key, name FROM workspaces WHERE scope_key = :scope_key AND identity = :identity;

-- name: add
INSERT INTO workspaces (scope_key, workspace_key, identity, name, created_at)
SELECT :scope_key, coalesce(max(workspace_key), 0) + 1, :identity, :name, :created_at
FROM workspaces WHERE scope_key = :scope_key
RETURNING workspace_key;

-- name: rename
UPDATE workspaces SET name = :name
WHERE scope_key = :scope_key AND workspace_key = :workspace_key;

-- name: read
SELECT identity, name FROM workspaces
WHERE scope_key = :scope_key AND workspace_key = :workspace_key;

-- name: lock_sessions
SELECT session_id, lease_digest, lease_epoch, lease_deadline FROM sessions
WHERE scope_key = :scope_key AND workspace_key = :workspace_key
ORDER BY session_key
FOR NO KEY UPDATE;

-- name: move_sessions
UPDATE sessions SET workspace_key = :to_workspace_key
WHERE scope_key = :scope_key AND workspace_key = :workspace_key;
