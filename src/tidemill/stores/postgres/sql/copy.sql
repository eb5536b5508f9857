-- Exports to another store, and imports from one.

-- name: jobs
-- $1 after, $2 limit
SELECT {columns} FROM (
    SELECT j AS job FROM tidemill.jobs AS j WHERE j.seq > $1 ORDER BY j.seq LIMIT $2
) AS next CROSS JOIN LATERAL tidemill.visible_job(next.job) ORDER BY seq;

-- name: ids
-- $1 after, $2 limit, $3 wall, $4 boot, $5 boot id
SELECT id, verdict, job, fence, claim FROM tidemill.known_ids
WHERE id > $1 AND (wall > $3 OR (boot_id = $5 AND boot > $4)) ORDER BY id LIMIT $2;

-- name: arrivals
-- $1 ids, $2 tasks, $3 payloads, $4 options, $5 arrived
INSERT INTO tidemill.arrivals (id, task, payload, options, arrived)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]::double precision[]);

-- name: raise_fence (only upwards: a concurrent claim may take the next one)
-- $1 lowest allowed value
SELECT setval('tidemill.fences', $1::bigint) FROM tidemill.fences WHERE last_value < $1::bigint;
