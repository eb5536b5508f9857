-- Leadership and reclaim: what idle workers ask every few seconds, each in one statement.

-- name: lead (takes leases and returns what waits; sorted, so that two calls cannot deadlock)
-- $1 wall, $2 boot, $3 epoch, $4 services, $5 worker, $6 seconds
WITH clock AS MATERIALIZED (SELECT wall, boot, epoch FROM tidemill.read_clock($1, $2, $3)),
won AS (
    INSERT INTO tidemill.leaders AS l (service, worker, lease)
    SELECT d.service, $5, boot + $6::double precision FROM clock, unnest($4::text[]) AS d (service)
    ORDER BY d.service COLLATE "C"
    ON CONFLICT (service) DO UPDATE SET worker = EXCLUDED.worker, lease = EXCLUDED.lease
    WHERE l.worker = EXCLUDED.worker OR l.lease <= (SELECT boot FROM clock)
    RETURNING l.service
)
SELECT c.wall, c.boot, c.epoch,
    ARRAY(SELECT service FROM won) AS won,
    (
        SELECT min(l.lease) FROM tidemill.leaders AS l
        WHERE l.service = ANY($4::text[]) AND l.worker <> $5 AND l.service NOT IN (SELECT service FROM won)
    ) AS free_at,
    EXISTS (SELECT FROM tidemill.arrivals) AS arrivals,
    {flow_due} AS flow_due, {schedule_due} AS schedule_due
FROM clock AS c;

-- name: due (seconds until a document of a kind has to be advanced)
CASE WHEN EXISTS (SELECT FROM tidemill.worklist WHERE kind = '{kind}') THEN 0
ELSE (
    SELECT greatest(0, due - c.wall) FROM tidemill.documents
    WHERE kind = '{kind}' AND due IS NOT NULL ORDER BY due LIMIT 1
) END

-- name: resign
-- $1 services, $2 worker
DELETE FROM tidemill.leaders WHERE service = ANY($1::text[]) AND worker = $2;

-- name: has_expired_lease (of a claim, or of abandoned units)
-- $1 wall, $2 boot, $3 epoch
SELECT c.wall, c.boot, c.epoch,
    EXISTS (SELECT FROM tidemill.jobs AS j WHERE j.state = 'running' AND j.lease <= c.boot)
    OR EXISTS (SELECT FROM tidemill.claims AS f WHERE f.lease <= c.boot)
    OR EXISTS (SELECT FROM tidemill.abandoned_units AS u WHERE u.lease <= c.boot) AS has_expired
FROM tidemill.read_clock($1, $2, $3) AS c;
