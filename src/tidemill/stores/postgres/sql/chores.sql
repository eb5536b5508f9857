-- What idle workers ask for every few seconds, each in one statement.

-- name: lead (whose duties these are, and what waits; in one order, lest two who ask wait for each other)
-- $1 wall, $2 boot, $3 epoch, $4 duties, $5 worker, $6 seconds
WITH clock AS MATERIALIZED (SELECT wall, boot, epoch FROM tidemill.read_clock($1, $2, $3)),
won AS (
    INSERT INTO tidemill.leaders AS l (duty, worker, lease)
    SELECT d.duty, $5, boot + $6::double precision FROM clock, unnest($4::text[]) AS d (duty)
    ORDER BY d.duty COLLATE "C"
    ON CONFLICT (duty) DO UPDATE SET worker = EXCLUDED.worker, lease = EXCLUDED.lease
    WHERE l.worker = EXCLUDED.worker OR l.lease <= (SELECT boot FROM clock)
    RETURNING l.duty
)
SELECT c.wall, c.boot, c.epoch,
    ARRAY(SELECT duty FROM won) AS won,
    (
        SELECT min(l.lease) FROM tidemill.leaders AS l
        WHERE l.duty = ANY($4::text[]) AND l.worker <> $5 AND l.duty NOT IN (SELECT duty FROM won)
    ) AS free_at,
    EXISTS (SELECT FROM tidemill.arrivals) AS arrivals,
    {flow_due} AS flow_due, {schedule_due} AS schedule_due
FROM clock AS c;

-- name: due (in how many seconds a course of a kind waits to be advanced)
CASE WHEN EXISTS (SELECT FROM tidemill.stirs WHERE kind = '{kind}') THEN 0
ELSE (
    SELECT greatest(0, due - c.wall) FROM tidemill.courses
    WHERE kind = '{kind}' AND due IS NOT NULL ORDER BY due LIMIT 1
) END

-- name: resign
-- $1 duties, $2 worker
DELETE FROM tidemill.leaders WHERE duty = ANY($1::text[]) AND worker = $2;

-- name: is_anything_over (a lease, or the time of who was left units)
-- $1 wall, $2 boot, $3 epoch
SELECT c.wall, c.boot, c.epoch,
    EXISTS (SELECT FROM tidemill.jobs AS j WHERE j.state = 'running' AND j.lease <= c.boot)
    OR EXISTS (SELECT FROM tidemill.claims AS f WHERE f.lease <= c.boot)
    OR EXISTS (SELECT FROM tidemill.left_units AS u WHERE u.lease <= c.boot) AS over
FROM tidemill.read_clock($1, $2, $3) AS c;
