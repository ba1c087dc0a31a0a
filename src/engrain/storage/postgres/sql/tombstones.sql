-- name: add
INSERT INTO tombstones (scope_key, kind, mark, recorded_at)
VALUES (:scope_key, :kind, :mark, :recorded_at)
ON CONFLICT (scope_key, kind, mark) DO NOTHING;
