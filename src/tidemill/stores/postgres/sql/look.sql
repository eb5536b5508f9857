-- What a step wants to know. Rows that the hot path may change are locked as they are read: jobs by their ids,
-- as settlements meet them, or one would wait for the other in a circle.

-- name: begin
-- $1 wall, $2 boot, $3 epoch
SELECT wall, boot, epoch, picks, seq, fence FROM tidemill.begin_step($1, $2, $3);

-- name: take_places
SELECT nextval('tidemill.places') FROM generate_series(1, $1::integer);

-- name: take_fence
SELECT nextval('tidemill.fences');

-- name: jobs
-- $1 ids
SELECT {columns} FROM tidemill.lock_jobs($1::text[]);

-- name: running_of
-- $1 workers
SELECT {columns} FROM tidemill.lock_running_of($1::text[]);

-- name: overdue
-- $1 boot, $2 workers, $3 how many at most
SELECT {columns} FROM tidemill.lock_overdue($1, $2::text[], $3);

-- name: holders
-- $1 queues, $2 keys
SELECT w.queue, w.key, j.id
FROM unnest($1::text[], $2::text[]) AS w (queue, key)
JOIN tidemill.jobs AS j ON j.queue = w.queue AND j.unique_key = w.key
WHERE j.unique_key IS NOT NULL
AND (j.unique_holds OR j.state IN ('scheduled', 'ready', 'waiting', 'running'))
ORDER BY j.seq;

-- name: successors
-- $1 ids
SELECT after, id FROM tidemill.jobs WHERE state = 'waiting' AND after = ANY($1::text[]) ORDER BY seq;

-- name: running_in (a lane begins with its key)
-- $1 queues
SELECT queue, split_part(lane, chr(31), 1) AS key, count(*) AS jobs FROM (
    SELECT queue, lane FROM tidemill.jobs WHERE state = 'running' AND queue = ANY($1::text[])
    UNION ALL
    SELECT queue, lane FROM tidemill.folded WHERE queue = ANY($1::text[])
) AS running GROUP BY 1, 2;

-- name: counts
-- $1 queues, $2 states
SELECT w.queue, w.state, CASE w.state
    WHEN 'ready' THEN (SELECT count(*) FROM tidemill.ready WHERE queue = w.queue)
    WHEN 'scheduled' THEN (SELECT count(*) FROM tidemill.jobs WHERE state = 'scheduled' AND queue = w.queue)
    WHEN 'running' THEN (SELECT count(*) FROM tidemill.jobs WHERE state = 'running' AND queue = w.queue)
        + (SELECT count(*) FROM tidemill.folded WHERE queue = w.queue)
    WHEN 'waiting' THEN (SELECT count(*) FROM tidemill.jobs WHERE state = 'waiting' AND queue = w.queue)
    ELSE (SELECT count(*) FROM tidemill.jobs
          WHERE finished IS NOT NULL AND state = w.state AND queue = w.queue)
    END AS jobs
FROM unnest($1::text[], $2::text[]) AS w (queue, state);

-- name: remembered
-- $1 ids
SELECT id, verdict, job, fence, claim, wall, boot, boot_id FROM tidemill.remembered WHERE id = ANY($1::text[]);

-- name: workers
-- $1 ids
SELECT id, number, lease, seen, host, pid, queues, concurrency FROM tidemill.workers
WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE;

-- name: checkpoints
-- $1 ids
SELECT job, name, arguments, paid, begun, fence, claim, try, kept, result, unknown FROM tidemill.checkpoints
WHERE job = ANY($1::text[]) ORDER BY number;

-- name: arrivals
-- $1 seqs
SELECT seq, id, task, payload, options, arrived FROM tidemill.arrivals
WHERE seq = ANY($1::bigint[]) ORDER BY seq FOR UPDATE;
