-- What a step made of its rows. $1 is a JSON array of rows, or as said.

-- name: drop_jobs
-- $1 ids
WITH logs AS (DELETE FROM tidemill.logs WHERE job = ANY($1::text[])),
    attempts AS (DELETE FROM tidemill.attempts WHERE job = ANY($1::text[])),
    checkpoints AS (DELETE FROM tidemill.checkpoints WHERE job = ANY($1::text[]))
DELETE FROM tidemill.jobs WHERE id = ANY($1::text[]);

-- name: jobs (new, or known by their place in line)
INSERT INTO tidemill.jobs ({columns})
SELECT {columns} FROM json_populate_recordset(NULL::tidemill.jobs, $1::json)
ON CONFLICT (seq) DO UPDATE SET {assignments};

-- name: queues
INSERT INTO tidemill.queues (name, declared, override, pause, inserts, gives, rings)
SELECT name, declared, override, pause, inserts, gives, rings
FROM json_populate_recordset(NULL::tidemill.queues, $1::json)
ON CONFLICT (name) DO UPDATE SET declared = EXCLUDED.declared, override = EXCLUDED.override,
    pause = EXCLUDED.pause, inserts = EXCLUDED.inserts, gives = EXCLUDED.gives, rings = EXCLUDED.rings;

-- name: plain_lanes (those of new queues)
-- $1 queues
INSERT INTO tidemill.lanes (queue, lane, grp, served, vacant)
SELECT name, '', '', 0, true FROM unnest($1::text[]) AS q (name)
ON CONFLICT DO NOTHING;

-- name: serve_plain
-- $1 queues, $2 served, null for one that has no job left
UPDATE tidemill.lanes AS l SET served = COALESCE(w.served, l.served), vacant = w.served IS NULL
FROM unnest($1::text[], $2::bigint[]) AS w (queue, served)
WHERE l.queue = w.queue AND l.lane = '';

-- name: lanes
INSERT INTO tidemill.lanes (queue, lane, grp, served, pool, key, until, again, urgency, lacks, ripe)
SELECT queue, lane, grp, served, pool, key, until, again, urgency, lacks, ripe
FROM json_populate_recordset(NULL::tidemill.lanes, $1::json)
ON CONFLICT (queue, lane) DO UPDATE SET served = EXCLUDED.served, pool = EXCLUDED.pool, key = EXCLUDED.key,
    until = EXCLUDED.until, again = EXCLUDED.again, urgency = EXCLUDED.urgency, lacks = EXCLUDED.lacks,
    ripe = EXCLUDED.ripe;

-- name: forget_lanes
-- $1 queues, $2 lanes
DELETE FROM tidemill.lanes AS l USING unnest($1::text[], $2::text[]) AS w (queue, lane)
WHERE l.queue = w.queue AND l.lane = w.lane;

-- name: heads
-- $1 queues, $2 lanes
UPDATE tidemill.lanes AS l SET priority = h.priority, seq = h.seq
FROM unnest($1::text[], $2::text[]) AS w (queue, lane)
CROSS JOIN LATERAL (
    SELECT j.priority, j.seq FROM tidemill.jobs AS j
    WHERE j.state = 'ready' AND j.queue = w.queue AND j.lane = w.lane
    ORDER BY j.priority, j.due, j.seq LIMIT 1
) AS h
WHERE l.queue = w.queue AND l.lane = w.lane AND (l.priority, l.seq) IS DISTINCT FROM (h.priority, h.seq);

-- name: groups (`lanes` is how many more there are)
INSERT INTO tidemill.groups AS g (queue, grp, lanes)
SELECT queue, grp, lanes FROM json_populate_recordset(NULL::tidemill.groups, $1::json)
ON CONFLICT (queue, grp) DO UPDATE SET lanes = g.lanes + EXCLUDED.lanes;

-- name: marks
INSERT INTO tidemill.groups AS g (queue, grp, lanes, pool, key, until, again, urgency)
SELECT queue, grp, 0, pool, key, until, again, urgency
FROM json_populate_recordset(NULL::tidemill.groups, $1::json)
ON CONFLICT (queue, grp) DO UPDATE SET pool = EXCLUDED.pool, key = EXCLUDED.key, until = EXCLUDED.until,
    again = EXCLUDED.again, urgency = EXCLUDED.urgency;

-- name: forget_groups
-- $1 queues, $2 groups
DELETE FROM tidemill.groups AS g USING unnest($1::text[], $2::text[]) AS w (queue, grp)
WHERE g.queue = w.queue AND g.grp = w.grp AND g.lanes <= 0 AND g.again IS NULL;

-- name: picked
-- $1 how many
SELECT setval('tidemill.picks', last_value + $1::bigint) FROM tidemill.picks;

-- name: remembered
INSERT INTO tidemill.remembered (id, verdict, job, fence, claim, wall, boot, boot_id)
SELECT id, verdict, job, fence, claim, wall, boot, boot_id
FROM json_populate_recordset(NULL::tidemill.remembered, $1::json)
ON CONFLICT (id) DO UPDATE SET verdict = EXCLUDED.verdict, job = EXCLUDED.job, fence = EXCLUDED.fence,
    claim = EXCLUDED.claim, wall = EXCLUDED.wall, boot = EXCLUDED.boot, boot_id = EXCLUDED.boot_id;

-- name: arrivals
-- $1 seqs
DELETE FROM tidemill.arrivals WHERE seq = ANY($1::bigint[]);

-- name: workers
INSERT INTO tidemill.workers (id, number, lease, seen, host, pid, queues, concurrency)
SELECT id, number, lease, seen, host, pid, queues, concurrency
FROM json_populate_recordset(NULL::tidemill.workers, $1::json)
ON CONFLICT (id) DO UPDATE SET number = EXCLUDED.number, lease = EXCLUDED.lease, seen = EXCLUDED.seen,
    host = EXCLUDED.host, pid = EXCLUDED.pid, queues = EXCLUDED.queues, concurrency = EXCLUDED.concurrency;

-- name: leaders
INSERT INTO tidemill.leaders (duty, worker, lease)
SELECT duty, worker, lease FROM json_populate_recordset(NULL::tidemill.leaders, $1::json)
ON CONFLICT (duty) DO UPDATE SET worker = EXCLUDED.worker, lease = EXCLUDED.lease;

-- name: resign
-- $1 duties
DELETE FROM tidemill.leaders WHERE duty = ANY($1::text[]);

-- name: checkpoints
INSERT INTO tidemill.checkpoints (job, name, arguments, paid, begun, fence, claim, try, kept, result, unknown)
SELECT job, name, arguments, paid, begun, fence, claim, try, kept, result, unknown
FROM json_populate_recordset(NULL::tidemill.checkpoints, $1::json)
ON CONFLICT (job, name, arguments) DO UPDATE SET paid = EXCLUDED.paid, begun = EXCLUDED.begun,
    fence = EXCLUDED.fence, claim = EXCLUDED.claim, try = EXCLUDED.try, kept = EXCLUDED.kept,
    result = EXCLUDED.result, unknown = EXCLUDED.unknown;

-- name: forget_checkpoints
-- $1 jobs, $2 names, $3 arguments
DELETE FROM tidemill.checkpoints AS c
USING unnest($1::text[], $2::text[], $3::text[]) AS w (job, name, arguments)
WHERE c.job = w.job AND c.name = w.name AND c.arguments = w.arguments;

-- name: attempts
INSERT INTO tidemill.attempts (job, generation, attempt, started, ended, worker, outcome, error)
SELECT job, generation, attempt, started, ended, worker, outcome, error
FROM json_populate_recordset(NULL::tidemill.attempts, $1::json);

-- name: trim_attempts
-- $1 jobs, $2 how many are kept
DELETE FROM tidemill.attempts AS a
USING (
    SELECT job, (
        SELECT k.number FROM tidemill.attempts AS k WHERE k.job = w.job ORDER BY k.number DESC OFFSET $2 LIMIT 1
    ) AS number
    FROM unnest($1::text[]) AS w (job)
) AS old
WHERE a.job = old.job AND a.number <= old.number;

-- name: logs
INSERT INTO tidemill.logs (job, generation, attempt, at, line)
SELECT job, generation, attempt, at, line FROM json_populate_recordset(NULL::tidemill.logs, $1::json);

-- name: trim_logs
-- $1 jobs, $2 generations, $3 attempts, $4 how many are kept
DELETE FROM tidemill.logs AS l
USING (
    SELECT job, generation, attempt, (
        SELECT k.number FROM tidemill.logs AS k
        WHERE k.job = w.job AND k.generation = w.generation AND k.attempt = w.attempt
        ORDER BY k.number DESC OFFSET $4 LIMIT 1
    ) AS number
    FROM unnest($1::text[], $2::integer[], $3::integer[]) AS w (job, generation, attempt)
) AS old
WHERE l.job = old.job AND l.generation = old.generation AND l.attempt = old.attempt
AND l.number <= old.number;

-- name: history
INSERT INTO tidemill.history (queue, minute, done, failed, cancelled, retried, reclaimed)
SELECT queue, minute, COALESCE(done, 0), COALESCE(failed, 0), COALESCE(cancelled, 0), COALESCE(retried, 0),
    COALESCE(reclaimed, 0)
FROM json_populate_recordset(NULL::tidemill.history, $1::json);
