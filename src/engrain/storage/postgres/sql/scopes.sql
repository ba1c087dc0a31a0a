-- name: find
SELECT scope_key, secret FROM scopes WHERE org = :org AND user_name = :user_name;

-- name: add
INSERT INTO scopes (scope_key, org, user_name, secret, created_at)
VALUES (:scope_key, :org, :user_name, :secret, :created_at)
ON CONFLICT (org, user_name) DO NOTHING;

-- name: lock
SELECT scope_key FROM scopes WHERE scope_key = :scope_key FOR NO KEY UPDATE;
