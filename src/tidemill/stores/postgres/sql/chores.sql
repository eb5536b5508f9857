-- What idle workers ask for every few seconds, each in one statement.

-- name: lead
-- $1 wall, $2 boot, $3 epoch, $4 duty, $5 worker, $6 seconds
WITH clock AS MATERIALIZED (SELECT boot FROM tidemill.read_clock($1, $2, $3))
INSERT INTO tidemill.leaders AS l (duty, worker, lease)
SELECT $4, $5, boot + $6::double precision FROM clock
ON CONFLICT (duty) DO UPDATE SET worker = EXCLUDED.worker, lease = EXCLUDED.lease
WHERE l.worker = EXCLUDED.worker OR l.lease <= (SELECT boot FROM clock)
RETURNING true;

-- name: resign
-- $1 duty, $2 worker
DELETE FROM tidemill.leaders WHERE duty = $1 AND worker = $2;

-- name: is_anything_over (a lease, or the time of who was left units)
-- $1 wall, $2 boot, $3 epoch
SELECT c.wall, c.boot, c.epoch,
    EXISTS (SELECT FROM tidemill.jobs AS j WHERE j.state = 'running' AND j.lease <= c.boot)
    OR EXISTS (SELECT FROM tidemill.claims AS f WHERE f.lease <= c.boot)
    OR EXISTS (SELECT FROM tidemill.left_units AS u WHERE u.lease <= c.boot) AS over
FROM tidemill.read_clock($1, $2, $3) AS c;
