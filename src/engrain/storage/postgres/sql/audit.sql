-- name: head
SELECT number, link FROM audit WHERE scope_key = :scope_key ORDER BY number DESC LIMIT 1;

-- name: add
INSERT INTO audit (scope_key, number, name, facts, recorded_at, link)
VALUES (:scope_key, :number, :name, :facts, :recorded_at, :link);

-- name: list
SELECT number, name, facts, recorded_at, link FROM audit
WHERE scope_key = :scope_key AND number > :after ORDER BY number LIMIT :limit;
