-- name: add
INSERT INTO episodes (episode_key, scope_key, episode_id, text, speaker, first_sequence,
    last_sequence, ordinal, occurred_from, occurred_to, recorded_at, importance, origin,
    sensitivity, labels, twin, tokens)
VALUES (:episode_key, :scope_key, :episode_id, :text, :speaker, :first_sequence, :last_sequence,
    :ordinal, :occurred_from, :occurred_to, :recorded_at, :importance, :origin, :sensitivity,
    :labels, :twin, :tokens);

-- name: status
SELECT 'known' AS status FROM episodes WHERE scope_key = :scope_key AND episode_id = :episode_id
UNION ALL
SELECT 'tombstoned' FROM tombstones
WHERE scope_key = :scope_key AND kind = 'episode' AND mark = :episode_id;

-- name: find_key
SELECT episode_key FROM episodes WHERE scope_key = :scope_key AND episode_id = :episode_id;

-- name: read
SELECT e.episode_id, s.session_id, e.episode_key, e.text, e.first_sequence, e.last_sequence,
    e.ordinal, e.occurred_from, e.occurred_to, e.recorded_at, e.speaker, e.importance, e.origin,
    e.sensitivity, e.labels, e.tokens, e.twin
FROM episodes e JOIN sessions s ON s.scope_key = e.scope_key AND s.session_key = e.episode_key >> 32
WHERE e.episode_key = :episode_key AND e.scope_key = :scope_key;

-- name: read_hit
SELECT e.episode_id, s.session_id, e.episode_key, e.text, e.first_sequence, e.last_sequence,
    e.ordinal, e.occurred_from, e.occurred_to, e.recorded_at, e.speaker, e.importance, e.origin,
    e.sensitivity, e.labels, e.tokens, e.twin,
    (SELECT count(*) FROM episodes f WHERE f.scope_key = e.scope_key AND f.twin = e.twin) AS family
FROM episodes e JOIN sessions s ON s.scope_key = e.scope_key AND s.session_key = e.episode_key >> 32
WHERE e.episode_key = :episode_key AND e.scope_key = :scope_key;

-- name: list
SELECT e.episode_id, s.session_id, e.episode_key, e.text, e.first_sequence, e.last_sequence,
    e.ordinal, e.occurred_from, e.occurred_to, e.recorded_at, e.speaker, e.importance, e.origin,
    e.sensitivity, e.labels, e.tokens, e.twin
FROM episodes e JOIN sessions s ON s.scope_key = e.scope_key AND s.session_key = e.episode_key >> 32
WHERE e.scope_key = :scope_key AND e.episode_key > :after
ORDER BY e.episode_key LIMIT :limit;

-- name: list_session
SELECT e.episode_id, s.session_id, e.episode_key, e.text, e.first_sequence, e.last_sequence,
    e.ordinal, e.occurred_from, e.occurred_to, e.recorded_at, e.speaker, e.importance, e.origin,
    e.sensitivity, e.labels, e.tokens, e.twin
FROM episodes e JOIN sessions s ON s.scope_key = e.scope_key AND s.session_key = e.episode_key >> 32
WHERE e.scope_key = :scope_key AND e.episode_key > :after
    AND e.episode_key <= (:session_key::bigint << 32 | 4294967295)
ORDER BY e.episode_key LIMIT :limit;

-- name: list_twins
SELECT episode_id, episode_key, recorded_at FROM episodes
WHERE scope_key = :scope_key AND twin = :twin
ORDER BY recorded_at DESC, episode_key DESC;

-- name: delete
DELETE FROM episodes WHERE episode_key = :episode_key AND scope_key = :scope_key;
