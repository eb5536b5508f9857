-- name: listen (what those left whose connection ended; and whoever had this number before)
DELETE FROM tidemill.parked AS p
WHERE p.pid = pg_backend_pid() OR NOT EXISTS (SELECT FROM pg_stat_get_activity(p.pid));

-- name: park
-- $1 topics, $2 the arming of each
INSERT INTO tidemill.parked (topic, pid, arming)
SELECT topic, pg_backend_pid(), arming FROM unnest($1::text[], $2::text[]::bigint[]) AS wanted (topic, arming);

-- name: leave
-- $1 armings
DELETE FROM tidemill.parked WHERE pid = pg_backend_pid() AND arming = ANY($1::text[]::bigint[]);

-- name: ring (how many were woken, and whether anybody waits for the end of a job)
-- $1 topics, $2 our own listening connection, $3 the latest arming before this was rung
SELECT tidemill.ring($1::text[], $2::integer, $3::bigint) AS woken,
    EXISTS (SELECT FROM tidemill.parked WHERE topic >= 'job:' AND topic < 'job;') AS for_ends;
