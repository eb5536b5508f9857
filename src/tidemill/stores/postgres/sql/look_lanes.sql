-- Queues and their lanes, as a step wants to know them.

-- name: queues
-- $1 names
SELECT name, declared, override, pause FROM tidemill.queues WHERE name = ANY($1::text[]);

-- name: groups
-- $1 queues
SELECT queue, grp, lanes, pool, key, until, again, urgency FROM tidemill.groups WHERE queue = ANY($1::text[]);

-- name: lanes
-- $1 queues, $2 lanes
SELECT l.queue, l.lane, l.served, l.pool, l.key, l.until, l.again, l.urgency, l.lacks, l.ripe
FROM unnest($1::text[], $2::text[]) AS w (queue, lane)
CROSS JOIN LATERAL (SELECT * FROM tidemill.lanes AS o WHERE o.queue = w.queue AND o.lane = w.lane OFFSET 0) AS l;

-- name: keys (the first jobs of lanes)
-- $1 queues, $2 lanes, $3 how many of each
SELECT w.queue, w.lane, j.priority, j.due, j.seq, j.id
FROM unnest($1::text[], $2::text[], $3::text[]::integer[]) AS w (queue, lane, jobs)
CROSS JOIN LATERAL (
    SELECT o.priority, o.due, o.seq, o.id FROM tidemill.ready AS o
    WHERE o.queue = w.queue AND o.lane = w.lane ORDER BY o.priority, o.due, o.seq LIMIT w.jobs
) AS j;

-- name: heads (the same as whole jobs; of lanes that only steps touch)
-- $1 queues, $2 lanes, $3 how many of each
WITH heads AS MATERIALIZED (
    SELECT o.id FROM unnest($1::text[], $2::text[], $3::text[]::integer[]) AS w (queue, lane, jobs)
    CROSS JOIN LATERAL (
        SELECT r.id FROM tidemill.ready AS r
        WHERE r.queue = w.queue AND r.lane = w.lane ORDER BY r.priority, r.due, r.seq LIMIT w.jobs
    ) AS o
)
SELECT {columns} FROM tidemill.jobs WHERE id = ANY(ARRAY(SELECT h.id FROM heads AS h))
ORDER BY queue, lane, priority, due, seq;

-- name: plain (the first of the lane '': whoever has locked a job's place in line has the job)
-- $1 queue, $2 how many
WITH heads AS MATERIALIZED (
    SELECT r.id FROM tidemill.ready AS r WHERE r.queue = $1 AND r.lane = ''
    ORDER BY r.priority, r.due, r.seq LIMIT $2 FOR UPDATE SKIP LOCKED
)
SELECT {columns} FROM tidemill.jobs WHERE id = ANY(ARRAY(SELECT h.id FROM heads AS h))
ORDER BY priority, due, seq;

-- name: open
-- $1 queue, $2 group, $3 how many
SELECT priority, served, seq, lane FROM tidemill.lanes
WHERE queue = $1 AND grp = $2 AND again IS NULL AND lane <> ''
ORDER BY priority, served, seq LIMIT $3;

-- name: due
-- $1 queue, $2 wall, $3 how many
SELECT {columns} FROM tidemill.jobs
WHERE state = 'scheduled' AND queue = $1 AND due <= $2 ORDER BY due, seq LIMIT $3 FOR UPDATE SKIP LOCKED;

-- name: later
-- $1 queue, $2 wall, $3 how many
SELECT due, seq, id FROM tidemill.jobs
WHERE state = 'scheduled' AND queue = $1 AND due > $2 ORDER BY due, seq LIMIT $3;

-- name: wakes
-- $1 queue, $2 how many
SELECT again, lane FROM tidemill.lanes
WHERE queue = $1 AND again IS NOT NULL ORDER BY again, lane LIMIT $2;

-- name: shut
-- $1 queues, $2 pools, $3 keys
SELECT w.queue, w.pool, w.key, l.lane
FROM unnest($1::text[], $2::text[], $3::text[]) AS w (queue, pool, key)
JOIN tidemill.lanes AS l ON l.pool = w.pool AND l.key = w.key AND l.queue = w.queue
WHERE l.again IS NOT NULL;

-- name: unripe
-- $1 queue, $2 what they wait for, $3 how many
SELECT lane FROM tidemill.lanes WHERE queue = $1 AND pool = $2 AND key = '' AND again IS NOT NULL LIMIT $3;

-- name: waiting_for
-- $1 pools, $2 keys
SELECT w.pool, w.key, l.queue
FROM unnest($1::text[], $2::text[]) AS w (pool, key)
JOIN tidemill.lanes AS l ON l.pool = w.pool AND l.key = w.key
WHERE l.again IS NOT NULL
UNION
SELECT w.pool, w.key, b.queue
FROM unnest($1::text[], $2::text[]) AS w (pool, key)
JOIN tidemill.groups AS b ON b.pool = w.pool AND b.key = w.key
WHERE b.again IS NOT NULL
ORDER BY 3;
