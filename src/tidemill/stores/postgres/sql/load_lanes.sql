-- Loads queues and lanes for an engine transaction.

-- name: queues
-- $1 names
SELECT name, declared, override, pause FROM tidemill.queues WHERE name = ANY($1::text[]);

-- name: blocks
-- $1 queues
SELECT queue, pool_set, lanes, pool, key, until, retry_at, blocked_priority FROM tidemill.blocks WHERE queue = ANY($1::text[]);

-- name: lanes
-- $1 queues, $2 lanes
SELECT l.queue, l.lane, l.served, l.pool, l.key, l.until, l.retry_at, l.blocked_priority, l.missing_jobs, l.batch_due_at
FROM unnest($1::text[], $2::text[]) AS w (queue, lane)
CROSS JOIN LATERAL (SELECT * FROM tidemill.lanes AS o WHERE o.queue = w.queue AND o.lane = w.lane OFFSET 0) AS l;

-- name: sort_keys (the first jobs of lanes)
-- $1 queues, $2 lanes, $3 limit for each
SELECT w.queue, w.lane, j.priority, j.due, j.seq, j.id
FROM unnest($1::text[], $2::text[], $3::text[]::integer[]) AS w (queue, lane, jobs)
CROSS JOIN LATERAL (
    SELECT o.priority, o.due, o.seq, o.id FROM tidemill.ready AS o
    WHERE o.queue = w.queue AND o.lane = w.lane ORDER BY o.priority, o.due, o.seq LIMIT w.jobs
) AS j;

-- name: heads (the first jobs as whole rows; for lanes that only engine transactions touch)
-- $1 queues, $2 lanes, $3 limit for each
WITH heads AS MATERIALIZED (
    SELECT o.id FROM unnest($1::text[], $2::text[], $3::text[]::integer[]) AS w (queue, lane, jobs)
    CROSS JOIN LATERAL (
        SELECT r.id FROM tidemill.ready AS r
        WHERE r.queue = w.queue AND r.lane = w.lane ORDER BY r.priority, r.due, r.seq LIMIT w.jobs
    ) AS o
)
SELECT {columns} FROM tidemill.jobs WHERE id = ANY(ARRAY(SELECT h.id FROM heads AS h))
ORDER BY queue, lane, priority, due, seq;

-- name: plain (the first jobs of the lane '': a lock on the row in `ready` covers the job)
-- $1 queue, $2 limit
WITH heads AS MATERIALIZED (
    SELECT r.id FROM tidemill.ready AS r WHERE r.queue = $1 AND r.lane = ''
    ORDER BY r.priority, r.due, r.seq LIMIT $2 FOR UPDATE SKIP LOCKED
)
SELECT {columns} FROM tidemill.jobs WHERE id = ANY(ARRAY(SELECT h.id FROM heads AS h))
ORDER BY priority, due, seq;

-- name: open_lanes
-- $1 queue, $2 group, $3 limit
SELECT priority, served, seq, lane FROM tidemill.lanes
WHERE queue = $1 AND pool_set = $2 AND retry_at IS NULL AND lane <> ''
ORDER BY priority, served, seq LIMIT $3;

-- name: due
-- $1 queue, $2 wall, $3 limit
SELECT {columns} FROM tidemill.jobs
WHERE state = 'scheduled' AND queue = $1 AND due <= $2 ORDER BY due, seq LIMIT $3 FOR UPDATE SKIP LOCKED;

-- name: later
-- $1 queue, $2 wall, $3 limit
SELECT due, seq, id FROM tidemill.jobs
WHERE state = 'scheduled' AND queue = $1 AND due > $2 ORDER BY due, seq LIMIT $3;

-- name: blocked_lanes
-- $1 queue, $2 limit
SELECT retry_at, lane FROM tidemill.lanes
WHERE queue = $1 AND retry_at IS NOT NULL ORDER BY retry_at, lane LIMIT $2;

-- name: lanes_blocked_by
-- $1 queues, $2 pools, $3 keys
SELECT w.queue, w.pool, w.key, l.lane
FROM unnest($1::text[], $2::text[], $3::text[]) AS w (queue, pool, key)
JOIN tidemill.lanes AS l ON l.pool = w.pool AND l.key = w.key AND l.queue = w.queue
WHERE l.retry_at IS NOT NULL;

-- name: waiting_batches
-- $1 queue, $2 what they wait for, $3 limit
SELECT lane FROM tidemill.lanes WHERE queue = $1 AND pool = $2 AND key = '' AND retry_at IS NOT NULL LIMIT $3;

-- name: queues_blocked_by
-- $1 pools, $2 keys
SELECT w.pool, w.key, l.queue
FROM unnest($1::text[], $2::text[]) AS w (pool, key)
JOIN tidemill.lanes AS l ON l.pool = w.pool AND l.key = w.key
WHERE l.retry_at IS NOT NULL
UNION
SELECT w.pool, w.key, b.queue
FROM unnest($1::text[], $2::text[]) AS w (pool, key)
JOIN tidemill.blocks AS b ON b.pool = w.pool AND b.key = w.key
WHERE b.retry_at IS NOT NULL
ORDER BY 3;
