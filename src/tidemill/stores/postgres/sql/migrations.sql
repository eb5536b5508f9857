-- name: process
SELECT pg_backend_pid();

-- name: server
SELECT pg_is_in_recovery(), current_setting('server_encoding');

-- name: who
SELECT current_user::text, current_database()::text;

-- name: is_there
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1);

-- name: tables (how many a schema has, and whether one of them is that of our versions; read from the
-- catalogue as of one instant: to_regclass answers from a cache that a lock does not refresh)
SELECT count(*), coalesce(bool_or(relname = 'migrations'), false)
FROM pg_class WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1);

-- name: version
SELECT max(version) FROM tidemill.migrations;

-- name: lock (one process at a time; it ends with the transaction, so a pooler is no trouble)
SELECT pg_advisory_xact_lock(hashtextextended('tidemill migrations of ' || $1, 0));

-- name: begin
CREATE TABLE tidemill.migrations (
    version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: record
INSERT INTO tidemill.migrations (version) VALUES ($1);
