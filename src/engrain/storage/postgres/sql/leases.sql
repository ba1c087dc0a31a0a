-- name: read
SELECT lease_digest, lease_epoch, lease_deadline, workspace_key FROM sessions
WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: grant
UPDATE sessions SET lease_digest = :digest, lease_epoch = :epoch, lease_deadline = :deadline,
    opened_at = :opened_at
WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: prolong
UPDATE sessions SET lease_deadline = :deadline
WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: release
UPDATE sessions SET lease_digest = NULL, lease_deadline = 0
WHERE scope_key = :scope_key AND session_key = :session_key AND lease_digest = :digest
    AND lease_epoch = :epoch;
