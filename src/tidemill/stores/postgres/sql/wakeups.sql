-- name: listen (deletes rows of ended connections, and of an earlier connection with this process id)
DELETE FROM tidemill.listeners AS l
WHERE l.pid = pg_backend_pid() OR NOT EXISTS (SELECT FROM pg_stat_get_activity(l.pid));

-- name: listen_for
-- $1 topics, $2 the wait id of each
INSERT INTO tidemill.listeners (topic, pid, wait_id)
SELECT topic, pg_backend_pid(), wait_id FROM unnest($1::text[], $2::text[]::bigint[]) AS wanted (topic, wait_id);

-- name: stop_listening
-- $1 wait ids
DELETE FROM tidemill.listeners WHERE pid = pg_backend_pid() AND wait_id = ANY($1::text[]::bigint[]);

-- name: wake_listeners (how many were woken, and whether a listener waits for the end of a job)
-- $1 topics, $2 pid of our listening connection, $3 our last wait id before the change
SELECT tidemill.wake_listeners($1::text[], $2::integer, $3::bigint) AS woken,
    EXISTS (SELECT FROM tidemill.listeners WHERE topic >= 'job:' AND topic < 'job;') AS has_job_listeners;
