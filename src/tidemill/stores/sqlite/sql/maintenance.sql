-- Consistency checks.

-- name: recount
SELECT queue, state, count(*) FROM jobs GROUP BY queue, state
UNION ALL
SELECT queue, state || '_flow_jobs', count(*) FROM jobs WHERE finished IS NOT NULL AND flow IS NOT NULL GROUP BY queue, state;

-- name: counters
SELECT queue, name, value FROM counters WHERE queue <> '' AND value <> 0;

-- name: lost_lanes  lanes with ready jobs that no claim would find
SELECT DISTINCT queue, lane FROM jobs
WHERE state = 'ready' AND NOT EXISTS (SELECT 1 FROM lanes WHERE lanes.queue = jobs.queue AND lanes.lane = jobs.lane);

-- name: wrong_heads  lanes whose head is not their first ready job, or that have none
SELECT queue, lane FROM lanes
WHERE (priority, due, seq) IS NOT (SELECT priority, due, seq FROM jobs
                                   WHERE state = 'ready' AND jobs.queue = lanes.queue AND jobs.lane = lanes.lane
                                   ORDER BY priority, due, seq LIMIT 1);

-- name: flush  any write will do: its commit waits for the disk, and so for all earlier commits
INSERT INTO meta (name, value) VALUES ('flushed', '1')
ON CONFLICT (name) DO UPDATE SET value = CAST(value + 1 AS TEXT);

-- name: orphaned_reservations  units of ended claims that no worker will settle
SELECT job, pool FROM reservations
WHERE abandoned_until IS NULL
  AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = reservations.job AND jobs.state = 'running'
                    AND jobs.fence = reservations.fence AND jobs.claim = reservations.claim);

-- name: accounts
SELECT pool, key, account FROM accounts ORDER BY pool, key;

-- name: orphans  checkpoints without a job
SELECT count(DISTINCT job), count(*) FROM checkpoints
WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.seq = checkpoints.job);

-- name: stale_work  worklist rows of deleted documents
SELECT kind, count(DISTINCT document), count(*) FROM worklist
WHERE NOT EXISTS (SELECT 1 FROM documents WHERE documents.kind = worklist.kind AND documents.id = worklist.document)
GROUP BY kind;

-- name: reserved  (pool, key)
SELECT reservation FROM reservations WHERE pool = ? AND key = ?;
