-- Keys are small integers inside, UUIDs (16 bytes) at the edge. Every row names its scope.
-- The scope key leads every primary key and unique constraint (but the directory of scopes), so
-- one scope's rows lie together and can be moved to another node without a change of schema.
-- Packed key: episode_key = session_key << 32 | number.

CREATE TABLE scopes (
    scope_key bigint PRIMARY KEY CHECK (scope_key > 0),
    org text NOT NULL,
    user_name text NOT NULL,
    secret bytea NOT NULL CHECK (length(secret) = 32),
    created_at bigint NOT NULL,
    session_count bigint NOT NULL DEFAULT 0,
    UNIQUE (org, user_name)
);

CREATE TABLE workspaces (
    scope_key bigint NOT NULL REFERENCES scopes,
    workspace_key bigint NOT NULL,
    identity bytea NOT NULL,
    name text NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (scope_key, workspace_key),
    UNIQUE (scope_key, identity)
);

CREATE TABLE sessions (
    session_key bigint NOT NULL CHECK (session_key < 2147483648),
    scope_key bigint NOT NULL REFERENCES scopes,
    session_id bytea NOT NULL CHECK (length(session_id) = 16),
    workspace_key bigint NOT NULL,
    title text,
    created_at bigint NOT NULL,
    opened_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    last_sequence bigint NOT NULL DEFAULT 0,
    link bytea NOT NULL CHECK (length(link) = 32),
    lease_digest bytea,
    lease_epoch bigint NOT NULL DEFAULT 0,
    lease_deadline bigint NOT NULL DEFAULT 0,
    extracted_through bigint NOT NULL DEFAULT 0,
    episode_count bigint NOT NULL DEFAULT 0,
    source_mark bytea,
    forked_from bytea,
    forked_sequence bigint,
    operation_id bytea NOT NULL CHECK (length(operation_id) = 16),
    request_digest bytea NOT NULL,
    UNIQUE (scope_key, session_id),
    UNIQUE (scope_key, operation_id),
    UNIQUE (scope_key, source_mark),
    FOREIGN KEY (scope_key, workspace_key) REFERENCES workspaces,
    PRIMARY KEY (scope_key, session_key)
) WITH (fillfactor = 70); -- each turn changes its row: room for it there, and no index is touched

CREATE INDEX sessions_opened ON sessions (scope_key, opened_at, session_id);
CREATE INDEX sessions_workspace ON sessions (scope_key, workspace_key, opened_at, session_id);

CREATE TABLE batches (
    scope_key bigint NOT NULL,
    session_key bigint NOT NULL,
    first_sequence bigint NOT NULL,
    last_sequence bigint NOT NULL,
    recorded_at bigint NOT NULL,
    link bytea NOT NULL CHECK (length(link) = 32),
    operation_id bytea NOT NULL CHECK (length(operation_id) = 16),
    request_digest bytea NOT NULL,
    PRIMARY KEY (scope_key, session_key, first_sequence),
    UNIQUE (scope_key, operation_id)
);

CREATE TABLE events (
    scope_key bigint NOT NULL,
    session_key bigint NOT NULL,
    sequence bigint NOT NULL,
    turn bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('system', 'user_message', 'assistant_message', 'tool_call',
        'tool_result', 'approval', 'audit', 'recall', 'summary', 'error')),
    commitment bytea NOT NULL CHECK (length(commitment) = 32),
    salt bytea,
    source_mark bytea,
    payload bytea,
    PRIMARY KEY (scope_key, session_key, sequence),
    CHECK ((salt IS NULL) = (payload IS NULL))
);

CREATE TABLE snapshots (
    scope_key bigint NOT NULL,
    session_key bigint NOT NULL,
    recorded_at bigint NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (scope_key, session_key),
    FOREIGN KEY (scope_key, session_key) REFERENCES sessions
);

CREATE TABLE operations (
    scope_key bigint NOT NULL,
    operation_id bytea NOT NULL CHECK (length(operation_id) = 16),
    verb text NOT NULL,
    session_key bigint NOT NULL,
    request_digest bytea NOT NULL,
    recorded_at bigint NOT NULL,
    PRIMARY KEY (scope_key, operation_id)
);

CREATE TABLE episodes (
    scope_key bigint NOT NULL,
    episode_key bigint NOT NULL,
    episode_id bytea NOT NULL CHECK (length(episode_id) = 16),
    text text NOT NULL,
    speaker text,
    first_sequence bigint NOT NULL,
    last_sequence bigint NOT NULL,
    ordinal bigint NOT NULL,
    occurred_from bigint,
    occurred_to bigint,
    recorded_at bigint NOT NULL,
    importance double precision NOT NULL CHECK (importance BETWEEN 0 AND 1),
    origin text NOT NULL,
    sensitivity bigint NOT NULL CHECK (sensitivity BETWEEN 0 AND 3),
    labels text NOT NULL,
    twin bytea NOT NULL CHECK (length(twin) = 8),
    tokens bigint NOT NULL,
    PRIMARY KEY (scope_key, episode_key),
    UNIQUE (scope_key, episode_id)
);

CREATE INDEX episodes_twin ON episodes (scope_key, twin);

-- Forward rows: the packed terms of each episode. They wait in `tail` until a job settles them
-- into `postings` and moves them to `forward`, which names the block to remove them from.
CREATE TABLE tail (
    scope_key bigint NOT NULL,
    episode_key bigint NOT NULL,
    terms bytea NOT NULL,
    PRIMARY KEY (scope_key, episode_key)
);

CREATE TABLE forward (
    scope_key bigint NOT NULL,
    episode_key bigint NOT NULL,
    block bigint NOT NULL,
    terms bytea NOT NULL,
    PRIMARY KEY (scope_key, episode_key)
);

CREATE TABLE postings (
    scope_key bigint NOT NULL,
    term text COLLATE "C" NOT NULL,
    block bigint NOT NULL,
    entries bytea NOT NULL,
    PRIMARY KEY (scope_key, term, block)
);

CREATE TABLE settled (
    scope_key bigint PRIMARY KEY,
    episode_count bigint NOT NULL,
    total_length bigint NOT NULL,
    last_block bigint NOT NULL
);

CREATE TABLE tombstones (
    scope_key bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('episode')),
    mark bytea NOT NULL,
    recorded_at bigint NOT NULL,
    PRIMARY KEY (scope_key, kind, mark)
);

CREATE TABLE audit (
    scope_key bigint NOT NULL,
    number bigint NOT NULL CHECK (number > 0),
    name text NOT NULL,
    facts text NOT NULL,
    recorded_at bigint NOT NULL,
    link bytea NOT NULL CHECK (length(link) = 32),
    PRIMARY KEY (scope_key, number)
);
