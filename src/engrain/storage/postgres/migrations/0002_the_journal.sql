-- The journal of agent turns: at most one open turn a session, and its pending batch of tool calls.

ALTER TABLE sessions ADD COLUMN open_turn bigint NOT NULL DEFAULT 0;

CREATE TABLE turns (
    scope_key bigint NOT NULL,
    session_key bigint NOT NULL,
    turn bigint NOT NULL CHECK (turn > 0),
    epoch bigint NOT NULL,
    opened_at bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('open', 'calling')),
    said bytea,
    PRIMARY KEY (scope_key, session_key),
    FOREIGN KEY (scope_key, session_key) REFERENCES sessions,
    CHECK ((state = 'calling') = (said IS NOT NULL))
);

CREATE TABLE invocations (
    scope_key bigint NOT NULL,
    session_key bigint NOT NULL,
    ordinal bigint NOT NULL CHECK (ordinal >= 0),
    call_id text NOT NULL,
    call bytea NOT NULL,
    state text NOT NULL CHECK (state IN ('planned', 'started', 'completed')),
    idempotency_key text NOT NULL,
    reserved_bytes bigint NOT NULL CHECK (reserved_bytes > 0),
    approval bytea,
    result bytea,
    PRIMARY KEY (scope_key, session_key, ordinal),
    UNIQUE (scope_key, session_key, call_id),
    FOREIGN KEY (scope_key, session_key) REFERENCES turns,
    CHECK ((state = 'completed') = (result IS NOT NULL)),
    CHECK (result IS NULL OR length(result) <= reserved_bytes)
);
