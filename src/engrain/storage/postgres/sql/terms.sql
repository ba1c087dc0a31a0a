-- name: add_tail
INSERT INTO tail (scope_key, episode_key, terms) VALUES (:scope_key, :episode_key, :terms);

-- name: list_tail
SELECT episode_key, terms FROM tail WHERE scope_key = :scope_key
ORDER BY episode_key LIMIT :limit;

-- name: count_tail
SELECT count(*) AS unsettled FROM tail WHERE scope_key = :scope_key;

-- name: drop_tail
DELETE FROM tail WHERE scope_key = :scope_key AND episode_key = :episode_key
RETURNING terms;

-- name: add_forward
INSERT INTO forward (scope_key, episode_key, block, terms)
VALUES (:scope_key, :episode_key, :block, :terms);

-- name: drop_forward
DELETE FROM forward WHERE scope_key = :scope_key AND episode_key = :episode_key
RETURNING block, terms;

-- name: add_postings
INSERT INTO postings (scope_key, term, block, entries)
VALUES (:scope_key, :term, :block, :entries);

-- name: list_postings
SELECT entries FROM postings WHERE scope_key = :scope_key AND term = :term ORDER BY block;

-- name: read_postings
SELECT entries FROM postings WHERE scope_key = :scope_key AND term = :term AND block = :block;

-- name: set_postings
UPDATE postings SET entries = :entries
WHERE scope_key = :scope_key AND term = :term AND block = :block;

-- name: drop_postings
DELETE FROM postings WHERE scope_key = :scope_key AND term = :term AND block = :block;

-- name: read_settled
SELECT episode_count, total_length, last_block FROM settled WHERE scope_key = :scope_key;

-- name: set_settled
INSERT INTO settled (scope_key, episode_count, total_length, last_block)
VALUES (:scope_key, :episode_count, :total_length, :last_block)
ON CONFLICT (scope_key) DO UPDATE SET episode_count = excluded.episode_count,
    total_length = excluded.total_length, last_block = excluded.last_block;
