-- name: find_turn
SELECT turn, epoch, opened_at, state, said FROM turns
WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: add_turn
INSERT INTO turns (scope_key, session_key, turn, epoch, opened_at, state)
VALUES (:scope_key, :session_key, :turn, :epoch, :opened_at, 'open');

-- name: set_turn
UPDATE turns SET state = :state, said = :said
WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: remove_turn
DELETE FROM turns WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: mark_session
UPDATE sessions SET open_turn = :turn
WHERE scope_key = :scope_key AND session_key = :session_key;

-- name: list_calls
SELECT call, state, idempotency_key, reserved_bytes, approval, result FROM invocations
WHERE scope_key = :scope_key AND session_key = :session_key
ORDER BY ordinal;

-- name: find_call
SELECT call, state, idempotency_key, reserved_bytes, approval, result FROM invocations
WHERE scope_key = :scope_key AND session_key = :session_key AND call_id = :call_id;

-- name: add_call
INSERT INTO invocations (scope_key, session_key, ordinal, call_id, call, state, idempotency_key,
    reserved_bytes)
VALUES (:scope_key, :session_key, :ordinal, :call_id, :call, 'planned', :idempotency_key,
    :reserved_bytes);

-- name: set_call
UPDATE invocations SET state = :state, approval = :approval, result = :result
WHERE scope_key = :scope_key AND session_key = :session_key AND call_id = :call_id;

-- name: remove_calls
DELETE FROM invocations WHERE scope_key = :scope_key AND session_key = :session_key;
