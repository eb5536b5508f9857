-- Reads; they block no writer.

-- name: get
-- $1 ids
SELECT {columns} FROM (SELECT j AS job FROM tidemill.jobs AS j WHERE j.id = ANY($1::text[])) AS named
CROSS JOIN LATERAL tidemill.visible_job(named.job);

-- name: counts (jobs in bulk claims run, although their rows say 'ready')
WITH held AS MATERIALIZED (SELECT queue, count(*) AS jobs FROM tidemill.bulk_claimed GROUP BY queue)
SELECT c.queue, c.state, sum(c.jobs)::bigint AS jobs, count(*) AS rows FROM (
    SELECT queue, CASE state WHEN 'retrying' THEN 'scheduled' ELSE state END AS state, jobs FROM tidemill.counts
    UNION ALL SELECT queue, 'running', jobs FROM held
    UNION ALL SELECT queue, 'ready', -jobs FROM held
) AS c GROUP BY c.queue, c.state;

-- name: history
-- $1 queue, $2 since
SELECT minute, sum(done)::bigint, sum(failed)::bigint, sum(cancelled)::bigint, sum(retried)::bigint,
    sum(reclaimed)::bigint, sum(dropped_early)::bigint
FROM tidemill.history WHERE queue = $1 AND minute >= $2 GROUP BY minute ORDER BY minute;

-- name: logs
-- $1 job, $2 limit for each attempt
SELECT generation, attempt, at, line FROM (
    SELECT generation, attempt, at, line, number,
        row_number() OVER (PARTITION BY generation, attempt ORDER BY number DESC) AS age
    FROM tidemill.logs WHERE job = $1
) AS recent WHERE age <= $2 ORDER BY generation, attempt, number;

-- name: attempts
-- $1 job, $2 limit
SELECT generation, attempt, started, ended, worker, outcome, error FROM (
    SELECT * FROM tidemill.attempts WHERE job = $1 ORDER BY number DESC LIMIT $2
) AS last ORDER BY number;

-- name: workers
-- $1 wall, $2 boot, $3 epoch
SELECT w.id, w.host, w.pid, w.queues, w.concurrency, w.seen,
    (SELECT count(*) FROM tidemill.jobs AS j WHERE j.state = 'running' AND j.worker = w.id)
    + (SELECT COALESCE(sum(c.open_jobs), 0)::bigint FROM tidemill.claims AS c WHERE c.worker = w.id) AS holds
FROM tidemill.workers AS w WHERE w.lease > (SELECT boot FROM tidemill.read_clock($1, $2, $3)) ORDER BY w.id;

-- name: backlog (the earliest due of each lane and priority; skips the jobs between)
-- $1 queue
WITH RECURSIVE entry (lane, priority) AS (
    (SELECT lane, priority FROM tidemill.ready WHERE queue = $1 ORDER BY lane, priority LIMIT 1)
    UNION ALL
    SELECT n.lane, n.priority FROM entry AS p CROSS JOIN LATERAL (
        SELECT r.lane, r.priority FROM tidemill.ready AS r
        WHERE r.queue = $1 AND (r.lane, r.priority) > (p.lane, p.priority)
        ORDER BY r.lane, r.priority LIMIT 1
    ) AS n
)
SELECT
    (SELECT min(f.due) FROM entry AS p CROSS JOIN LATERAL (
        SELECT r.due FROM tidemill.ready AS r
        WHERE r.queue = $1 AND r.lane = p.lane AND r.priority = p.priority ORDER BY r.due LIMIT 1
    ) AS f) AS oldest_ready,
    (SELECT min(due) FROM tidemill.jobs WHERE state = 'scheduled' AND queue = $1) AS next_due,
    (SELECT COALESCE(sum(jobs), 0)::bigint FROM tidemill.counts WHERE queue = $1 AND state = 'retrying') AS retrying,
    GREATEST(
        (SELECT max(GREATEST(
            (SELECT max(finished) FROM tidemill.jobs
             WHERE finished IS NOT NULL AND queue = $1 AND state = ends.state AND (flow IS NULL) IS TRUE),
            (SELECT max(finished) FROM tidemill.jobs
             WHERE finished IS NOT NULL AND queue = $1 AND state = ends.state AND (flow IS NULL) IS FALSE)
         )) FROM (VALUES ('done'), ('failed'), ('cancelled')) AS ends (state)),
        (SELECT minute FROM tidemill.history WHERE queue = $1 AND done + failed + cancelled > 0
         ORDER BY minute DESC LIMIT 1)
    ) AS last_ended;

-- name: ahead
-- $1 job, $2 limit
SELECT (
    SELECT count(*) FROM (
        SELECT FROM tidemill.ready AS o
        WHERE o.queue = j.queue AND o.lane = j.lane
        AND (o.priority, o.due, o.seq) < (j.priority, j.due, j.seq) LIMIT $2
    ) AS before
) AS ahead
FROM tidemill.jobs AS j CROSS JOIN LATERAL tidemill.visible_job(j) AS s WHERE j.id = $1 AND s.state = 'ready';

-- name: pooled_lanes (their number)
SELECT count(*) FROM tidemill.lanes WHERE strpos(lane, chr(31)) > 0;

-- name: demand (lanes whose jobs need pools or share calls: their names have several parts)
-- $1 sample size
SELECT l.queue, l.lane, p.priority, p.jobs, s.needs, s.batching, s.deferred_needs
FROM tidemill.lanes AS l
CROSS JOIN LATERAL (
    SELECT r.priority, count(*) AS jobs FROM tidemill.ready AS r
    WHERE r.queue = l.queue AND r.lane = l.lane GROUP BY r.priority
) AS p
CROSS JOIN LATERAL (
    SELECT j.needs, j.batching, j.deferred_needs, r.due, r.seq
    FROM tidemill.ready AS r JOIN tidemill.jobs AS j ON j.id = r.id
    WHERE r.queue = l.queue AND r.lane = l.lane AND r.priority = p.priority
    ORDER BY r.due, r.seq LIMIT $1
) AS s
WHERE strpos(l.lane, chr(31)) > 0
ORDER BY l.queue, l.lane, p.priority, s.due, s.seq;

-- name: queues
SELECT name, declared, override, pause FROM tidemill.queues ORDER BY name;

-- name: arrivals
-- $1 after, $2 limit
SELECT seq, id, task, payload, options, arrived FROM tidemill.arrivals WHERE seq > $1 ORDER BY seq LIMIT $2;

-- name: checkpoints
-- $1 job
SELECT name, arguments, paid, begun, fence, claim, try, kept, result, unknown FROM tidemill.checkpoints
WHERE job = $1 ORDER BY number;

-- name: result
-- $1 job, $2 name, $3 arguments
SELECT result FROM tidemill.checkpoints WHERE job = $1 AND name = $2 AND arguments = $3;

-- name: pools
SELECT name, declared, override FROM tidemill.pools;

-- name: accounts
SELECT pool, key, account FROM tidemill.accounts;

-- name: open_reservations
SELECT pool, key, count(*) AS open FROM tidemill.reservations GROUP BY pool, key;

-- name: pool_history
-- $1 pool, $2 since
SELECT minute, calls, units, refusals FROM tidemill.pool_history
WHERE pool = $1 AND minute >= $2 ORDER BY minute;
