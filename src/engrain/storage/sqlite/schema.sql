-- The schema after all migrations, drawn by engrain.storage.schema_picture; do not edit.

CREATE TABLE audit (
    scope_key INTEGER NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    name TEXT NOT NULL,
    facts TEXT NOT NULL,
    recorded_at INTEGER NOT NULL,
    link BLOB NOT NULL CHECK (length(link) = 32),
    PRIMARY KEY (scope_key, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE batches (
    batch_key INTEGER PRIMARY KEY,
    scope_key INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    link BLOB NOT NULL CHECK (length(link) = 32),
    operation_id BLOB NOT NULL CHECK (length(operation_id) = 16),
    request_digest BLOB NOT NULL,
    UNIQUE (scope_key, operation_id)
) STRICT;

CREATE TABLE episodes (
    episode_key INTEGER PRIMARY KEY,
    scope_key INTEGER NOT NULL,
    episode_id BLOB NOT NULL CHECK (length(episode_id) = 16),
    text TEXT NOT NULL,
    speaker TEXT,
    first_sequence INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    occurred_from INTEGER,
    occurred_to INTEGER,
    recorded_at INTEGER NOT NULL,
    importance REAL NOT NULL CHECK (importance BETWEEN 0 AND 1),
    origin TEXT NOT NULL,
    sensitivity INTEGER NOT NULL CHECK (sensitivity BETWEEN 0 AND 3),
    labels TEXT NOT NULL,
    twin BLOB NOT NULL CHECK (length(twin) = 8),
    tokens INTEGER NOT NULL,
    UNIQUE (scope_key, episode_id)
) STRICT;

CREATE INDEX episodes_twin ON episodes (scope_key, twin);

CREATE TABLE events (
    event_key INTEGER PRIMARY KEY,
    scope_key INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind = 'user_message' OR kind = 'assistant_message'
        OR kind = 'tool_call' OR kind = 'tool_result' OR kind = 'recall' OR kind = 'audit'
        OR kind = 'approval' OR kind = 'system' OR kind = 'error' OR kind = 'summary'),
    commitment BLOB NOT NULL CHECK (length(commitment) = 32),
    salt BLOB,
    source_mark BLOB,
    payload BLOB,
    CHECK ((salt IS NULL) = (payload IS NULL))
) STRICT;

CREATE TABLE forward (
    scope_key INTEGER NOT NULL,
    episode_key INTEGER NOT NULL,
    block INTEGER NOT NULL,
    terms BLOB NOT NULL,
    PRIMARY KEY (scope_key, episode_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE invocations (
    scope_key INTEGER NOT NULL,
    session_key INTEGER NOT NULL,
    ordinal INTEGER NOT NULL CHECK (ordinal >= 0),
    call_id TEXT NOT NULL,
    call BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('planned', 'started', 'completed')),
    idempotency_key TEXT NOT NULL,
    reserved_bytes INTEGER NOT NULL CHECK (reserved_bytes > 0),
    approval BLOB,
    result BLOB,
    PRIMARY KEY (scope_key, session_key, ordinal),
    UNIQUE (scope_key, session_key, call_id),
    FOREIGN KEY (scope_key, session_key) REFERENCES turns,
    CHECK ((state = 'completed') = (result IS NOT NULL)),
    CHECK (result IS NULL OR length(result) <= reserved_bytes)
) STRICT;

CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT;

CREATE TABLE operations (
    scope_key INTEGER NOT NULL,
    operation_id BLOB NOT NULL CHECK (length(operation_id) = 16),
    verb TEXT NOT NULL,
    session_key INTEGER NOT NULL,
    request_digest BLOB NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (scope_key, operation_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE postings (
    scope_key INTEGER NOT NULL,
    term TEXT NOT NULL,
    block INTEGER NOT NULL,
    entries BLOB NOT NULL,
    PRIMARY KEY (scope_key, term, block)
) STRICT, WITHOUT ROWID;

CREATE TABLE scopes (
    scope_key INTEGER PRIMARY KEY CHECK (scope_key > 0),
    org TEXT NOT NULL,
    user_name TEXT NOT NULL,
    secret BLOB NOT NULL CHECK (length(secret) = 32),
    created_at INTEGER NOT NULL,
    UNIQUE (org, user_name)
) STRICT;

CREATE TABLE sessions (
    session_key INTEGER PRIMARY KEY AUTOINCREMENT CHECK (session_key < 2147483648),
    scope_key INTEGER NOT NULL REFERENCES scopes,
    session_id BLOB NOT NULL CHECK (length(session_id) = 16),
    workspace_key INTEGER NOT NULL,
    title TEXT,
    created_at INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL DEFAULT 0,
    link BLOB NOT NULL CHECK (length(link) = 32),
    lease_digest BLOB,
    lease_epoch INTEGER NOT NULL DEFAULT 0,
    lease_deadline INTEGER NOT NULL DEFAULT 0,
    extracted_through INTEGER NOT NULL DEFAULT 0,
    episode_count INTEGER NOT NULL DEFAULT 0,
    source_mark BLOB,
    forked_from BLOB,
    forked_sequence INTEGER,
    operation_id BLOB NOT NULL CHECK (length(operation_id) = 16),
    request_digest BLOB NOT NULL, open_turn INTEGER NOT NULL DEFAULT 0,
    UNIQUE (scope_key, session_id),
    UNIQUE (scope_key, operation_id),
    UNIQUE (scope_key, source_mark),
    FOREIGN KEY (scope_key, workspace_key) REFERENCES workspaces
) STRICT;

CREATE INDEX sessions_opened ON sessions (scope_key, opened_at, session_id);

CREATE INDEX sessions_scope ON sessions (scope_key);

CREATE INDEX sessions_workspace ON sessions (scope_key, workspace_key, opened_at, session_id);

CREATE TABLE settled (
    scope_key INTEGER PRIMARY KEY,
    episode_count INTEGER NOT NULL,
    total_length INTEGER NOT NULL,
    last_block INTEGER NOT NULL
) STRICT;

CREATE TABLE snapshots (
    scope_key INTEGER NOT NULL,
    session_key INTEGER NOT NULL REFERENCES sessions,
    recorded_at INTEGER NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (scope_key, session_key)
) STRICT;

CREATE TABLE tail (
    scope_key INTEGER NOT NULL,
    episode_key INTEGER NOT NULL,
    terms BLOB NOT NULL,
    PRIMARY KEY (scope_key, episode_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE tombstones (
    scope_key INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('episode')),
    mark BLOB NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (scope_key, kind, mark)
) STRICT, WITHOUT ROWID;

CREATE TABLE turns (
    scope_key INTEGER NOT NULL,
    session_key INTEGER NOT NULL REFERENCES sessions,
    turn INTEGER NOT NULL CHECK (turn > 0),
    epoch INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'calling')),
    said BLOB,
    PRIMARY KEY (scope_key, session_key),
    CHECK ((state = 'calling') = (said IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE workspaces (
    scope_key INTEGER NOT NULL REFERENCES scopes,
    workspace_key INTEGER NOT NULL,
    identity BLOB NOT NULL,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (scope_key, workspace_key),
    UNIQUE (scope_key, identity)
) STRICT, WITHOUT ROWID;
