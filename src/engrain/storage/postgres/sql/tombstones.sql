-- name: find
SELECT recorded_at FROM tombstones
WHERE scope_key = :scope_key AND kind = :kind AND mark = :mark;

-- name: add
INSERT INTO tombstones (scope_key, kind, mark, recorded_at)
VALUES (:scope_key, :kind, :mark, :recorded_at)
ON CONFLICT (scope_key, kind, mark) DO NOTHING;
