-- name: backend_pid
SELECT pg_backend_pid();

-- name: server
SELECT pg_is_in_recovery(), current_setting('server_encoding');

-- name: current_role
SELECT current_user::text, current_database()::text;

-- name: has_schema
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1);

-- name: tables (number of tables, and whether `migrations` is one; to_regclass uses a stale cache)
SELECT count(*), coalesce(bool_or(relname = 'migrations'), false)
FROM pg_class WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1);

-- name: version
SELECT max(version) FROM tidemill.migrations;

-- name: lock (one process at a time; ends with the transaction, so it works behind a pooler)
SELECT pg_advisory_xact_lock(hashtextextended('tidemill migrations of ' || $1, 0));

-- name: create_migrations
CREATE TABLE tidemill.migrations (
    version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: record
INSERT INTO tidemill.migrations (version) VALUES ($1);
