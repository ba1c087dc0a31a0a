-- The schema after all migrations, drawn by engrain.storage.schema_picture; do not edit.

CREATE TABLE audit (
    scope_key bigint NOT NULL,
    number bigint NOT NULL,
    name text NOT NULL,
    facts text NOT NULL,
    recorded_at bigint NOT NULL,
    link bytea NOT NULL,
    PRIMARY KEY (scope_key, number),
    CHECK ((length(link) = 32)),
    CHECK ((number > 0))
);

CREATE TABLE batches (
    scope_key bigint NOT NULL,
    session_key bigint NOT NULL,
    first_sequence bigint NOT NULL,
    last_sequence bigint NOT NULL,
    recorded_at bigint NOT NULL,
    link bytea NOT NULL,
    operation_id bytea NOT NULL,
    request_digest bytea NOT NULL,
    PRIMARY KEY (scope_key, session_key, first_sequence),
    UNIQUE (scope_key, operation_id),
    CHECK ((length(link) = 32)),
    CHECK ((length(operation_id) = 16))
);

CREATE TABLE episodes (
    scope_key bigint NOT NULL,
    episode_key bigint NOT NULL,
    episode_id bytea NOT NULL,
    text text NOT NULL,
    speaker text,
    first_sequence bigint NOT NULL,
    last_sequence bigint NOT NULL,
    ordinal bigint NOT NULL,
    occurred_from bigint,
    occurred_to bigint,
    recorded_at bigint NOT NULL,
    importance double precision NOT NULL,
    origin text NOT NULL,
    sensitivity bigint NOT NULL,
    labels text NOT NULL,
    twin bytea NOT NULL,
    tokens bigint NOT NULL,
    PRIMARY KEY (scope_key, episode_key),
    UNIQUE (scope_key, episode_id),
    CHECK ((length(episode_id) = 16)),
    CHECK (((importance >= (0)::double precision) AND (importance <= (1)::double precision))),
    CHECK (((sensitivity >= 0) AND (sensitivity <= 3))),
    CHECK ((length(twin) = 8))
);

CREATE INDEX episodes_twin ON episodes USING btree (scope_key, twin);

CREATE TABLE events (
    scope_key bigint NOT NULL,
    session_key bigint NOT NULL,
    sequence bigint NOT NULL,
    turn bigint NOT NULL,
    kind text NOT NULL,
    commitment bytea NOT NULL,
    salt bytea,
    source_mark bytea,
    payload bytea,
    PRIMARY KEY (scope_key, session_key, sequence),
    CHECK (((salt IS NULL) = (payload IS NULL))),
    CHECK ((length(commitment) = 32)),
    CHECK ((kind = ANY (ARRAY['system'::text, 'user_message'::text, 'assistant_message'::text, 'tool_call'::text, 'tool_result'::text, 'approval'::text, 'audit'::text, 'recall'::text, 'summary'::text, 'error'::text])))
);

CREATE TABLE forward (
    scope_key bigint NOT NULL,
    episode_key bigint NOT NULL,
    block bigint NOT NULL,
    terms bytea NOT NULL,
    PRIMARY KEY (scope_key, episode_key)
);

CREATE TABLE invocations (
    scope_key bigint NOT NULL,
    session_key bigint NOT NULL,
    ordinal bigint NOT NULL,
    call_id text NOT NULL,
    call bytea NOT NULL,
    state text NOT NULL,
    idempotency_key text NOT NULL,
    reserved_bytes bigint NOT NULL,
    approval bytea,
    result bytea,
    PRIMARY KEY (scope_key, session_key, ordinal),
    UNIQUE (scope_key, session_key, call_id),
    FOREIGN KEY (scope_key, session_key) REFERENCES turns(scope_key, session_key),
    CHECK (((state = 'completed'::text) = (result IS NOT NULL))),
    CHECK (((result IS NULL) OR (length(result) <= reserved_bytes))),
    CHECK ((ordinal >= 0)),
    CHECK ((reserved_bytes > 0)),
    CHECK ((state = ANY (ARRAY['planned'::text, 'started'::text, 'completed'::text])))
);

CREATE TABLE migrations (
    number bigint NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (number)
);

CREATE TABLE operations (
    scope_key bigint NOT NULL,
    operation_id bytea NOT NULL,
    verb text NOT NULL,
    session_key bigint NOT NULL,
    request_digest bytea NOT NULL,
    recorded_at bigint NOT NULL,
    PRIMARY KEY (scope_key, operation_id),
    CHECK ((length(operation_id) = 16))
);

CREATE TABLE postings (
    scope_key bigint NOT NULL,
    term text COLLATE "C" NOT NULL,
    block bigint NOT NULL,
    entries bytea NOT NULL,
    PRIMARY KEY (scope_key, term, block)
);

CREATE TABLE scopes (
    scope_key bigint NOT NULL,
    org text NOT NULL,
    user_name text NOT NULL,
    secret bytea NOT NULL,
    created_at bigint NOT NULL,
    session_count bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (scope_key),
    UNIQUE (org, user_name),
    CHECK ((scope_key > 0)),
    CHECK ((length(secret) = 32))
);

CREATE TABLE sessions (
    session_key bigint NOT NULL,
    scope_key bigint NOT NULL,
    session_id bytea NOT NULL,
    workspace_key bigint NOT NULL,
    title text,
    created_at bigint NOT NULL,
    opened_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    last_sequence bigint NOT NULL DEFAULT 0,
    link bytea NOT NULL,
    lease_digest bytea,
    lease_epoch bigint NOT NULL DEFAULT 0,
    lease_deadline bigint NOT NULL DEFAULT 0,
    extracted_through bigint NOT NULL DEFAULT 0,
    episode_count bigint NOT NULL DEFAULT 0,
    source_mark bytea,
    forked_from bytea,
    forked_sequence bigint,
    operation_id bytea NOT NULL,
    request_digest bytea NOT NULL,
    open_turn bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (scope_key, session_key),
    UNIQUE (scope_key, operation_id),
    UNIQUE (scope_key, session_id),
    UNIQUE (scope_key, source_mark),
    FOREIGN KEY (scope_key) REFERENCES scopes(scope_key),
    FOREIGN KEY (scope_key, workspace_key) REFERENCES workspaces(scope_key, workspace_key),
    CHECK ((length(link) = 32)),
    CHECK ((length(operation_id) = 16)),
    CHECK ((length(session_id) = 16)),
    CHECK ((session_key < '2147483648'::bigint))
);

CREATE INDEX sessions_opened ON sessions USING btree (scope_key, opened_at, session_id);

CREATE INDEX sessions_workspace ON sessions USING btree (scope_key, workspace_key, opened_at, session_id);

CREATE TABLE settled (
    scope_key bigint NOT NULL,
    episode_count bigint NOT NULL,
    total_length bigint NOT NULL,
    last_block bigint NOT NULL,
    PRIMARY KEY (scope_key)
);

CREATE TABLE snapshots (
    scope_key bigint NOT NULL,
    session_key bigint NOT NULL,
    recorded_at bigint NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (scope_key, session_key),
    FOREIGN KEY (scope_key, session_key) REFERENCES sessions(scope_key, session_key)
);

CREATE TABLE tail (
    scope_key bigint NOT NULL,
    episode_key bigint NOT NULL,
    terms bytea NOT NULL,
    PRIMARY KEY (scope_key, episode_key)
);

CREATE TABLE tombstones (
    scope_key bigint NOT NULL,
    kind text NOT NULL,
    mark bytea NOT NULL,
    recorded_at bigint NOT NULL,
    PRIMARY KEY (scope_key, kind, mark),
    CHECK ((kind = 'episode'::text))
);

CREATE TABLE turns (
    scope_key bigint NOT NULL,
    session_key bigint NOT NULL,
    turn bigint NOT NULL,
    epoch bigint NOT NULL,
    opened_at bigint NOT NULL,
    state text NOT NULL,
    said bytea,
    PRIMARY KEY (scope_key, session_key),
    FOREIGN KEY (scope_key, session_key) REFERENCES sessions(scope_key, session_key),
    CHECK (((state = 'calling'::text) = (said IS NOT NULL))),
    CHECK ((state = ANY (ARRAY['open'::text, 'calling'::text]))),
    CHECK ((turn > 0))
);

CREATE TABLE workspaces (
    scope_key bigint NOT NULL,
    workspace_key bigint NOT NULL,
    identity bytea NOT NULL,
    name text NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (scope_key, workspace_key),
    UNIQUE (scope_key, identity),
    FOREIGN KEY (scope_key) REFERENCES scopes(scope_key)
);
