-- The journal of agent turns: at most one open turn a session, and its pending batch of tool calls.

ALTER TABLE sessions ADD COLUMN open_turn INTEGER NOT NULL DEFAULT 0;

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
