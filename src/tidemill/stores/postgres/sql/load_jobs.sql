-- Loads rows for an engine transaction. Rows that the fast path may change are locked as they are read: jobs
-- in the order of their ids, like settlements, so that two transactions cannot deadlock.
--
-- An engine transaction avoids sorts (begin_engine_transaction). Where a few rows have to be sorted, the
-- expression matches no index: otherwise the planner would read all jobs in that order for the few that are
-- wanted.

-- name: begin
-- $1 wall, $2 boot, $3 epoch `waited` is how long the statement waited for its turn, by the server's clock;
-- NULL with the clock of a test.
SELECT b.wall, b.boot, b.epoch, b.picks, b.seq, b.fence,
    CASE WHEN $1::double precision IS NULL
        THEN b.wall - c.skew - extract(epoch FROM statement_timestamp())::double precision END AS waited
FROM tidemill.begin_engine_transaction($1, $2, $3) AS b, tidemill.clock AS c;

-- name: take_seqs
SELECT nextval('tidemill.job_seqs') FROM generate_series(1, $1::integer);

-- name: take_fence
SELECT nextval('tidemill.fences');

-- name: jobs
-- $1 ids
SELECT {columns} FROM tidemill.lock_jobs($1::text[]);

-- name: running_jobs_of
-- $1 workers
SELECT {columns} FROM tidemill.lock_running_jobs($1::text[]);

-- name: overdue
-- $1 boot, $2 workers, $3 limit
SELECT {columns} FROM tidemill.lock_overdue($1, $2::text[], $3);

-- name: holders
-- $1 queues, $2 keys
SELECT w.queue, w.key, j.id
FROM unnest($1::text[], $2::text[]) AS w (queue, key)
CROSS JOIN LATERAL (
    SELECT o.id, o.seq FROM tidemill.jobs AS o
    WHERE o.queue = w.queue AND o.unique_key = w.key
    AND (o.unique_holds OR o.state IN ('scheduled', 'ready', 'waiting', 'running')) OFFSET 0
) AS j
ORDER BY j.seq;

-- name: successors
-- $1 ids
SELECT w.id AS after, j.id FROM unnest($1::text[]) AS w (id)
CROSS JOIN LATERAL (
    SELECT o.id, o.seq FROM tidemill.jobs AS o WHERE o.state = 'waiting' AND o.after = w.id OFFSET 0
) AS j
ORDER BY j.seq;

-- name: running_by_key (a lane starts with its key)
-- $1 queues
SELECT queue, split_part(lane, chr(31), 1) AS key, count(*) AS jobs FROM (
    SELECT queue, lane FROM tidemill.jobs WHERE state = 'running' AND queue = ANY($1::text[])
    UNION ALL
    SELECT queue, lane FROM tidemill.bulk_claimed WHERE queue = ANY($1::text[])
) AS running GROUP BY 1, 2;

-- name: counts
-- $1 queues, $2 states
SELECT w.queue, w.state, CASE w.state
    WHEN 'ready' THEN (SELECT count(*) FROM tidemill.ready WHERE queue = w.queue)
    WHEN 'scheduled' THEN (SELECT count(*) FROM tidemill.jobs WHERE state = 'scheduled' AND queue = w.queue)
    WHEN 'running' THEN (SELECT count(*) FROM tidemill.jobs WHERE state = 'running' AND queue = w.queue)
        + (SELECT count(*) FROM tidemill.bulk_claimed WHERE queue = w.queue)
    WHEN 'waiting' THEN (SELECT count(*) FROM tidemill.jobs WHERE state = 'waiting' AND queue = w.queue)
    ELSE (SELECT count(*) FROM tidemill.jobs
          WHERE finished IS NOT NULL AND state = w.state AND queue = w.queue)
    END AS jobs
FROM unnest($1::text[], $2::text[]) AS w (queue, state);

-- name: known_ids
-- $1 ids
SELECT id, verdict, job, fence, claim, wall, boot, boot_id FROM tidemill.known_ids WHERE id = ANY($1::text[]);

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
WHERE seq = ANY($1::text[]::bigint[]) ORDER BY seq FOR UPDATE;
