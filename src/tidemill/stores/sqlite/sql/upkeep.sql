-- Whether the tables agree with each other.

-- name: recount
SELECT queue, state, count(*) FROM jobs GROUP BY queue, state
UNION ALL
SELECT queue, state || '_parts', count(*) FROM jobs WHERE finished IS NOT NULL AND flow IS NOT NULL GROUP BY queue, state;

-- name: counted
SELECT queue, name, value FROM counters WHERE queue <> '' AND value <> 0;

-- name: lost_lanes  lanes with ready jobs that no claim would find
SELECT DISTINCT queue, lane FROM jobs
WHERE state = 'ready' AND NOT EXISTS (SELECT 1 FROM lanes WHERE lanes.queue = jobs.queue AND lanes.lane = jobs.lane);

-- name: wrong_heads  lanes whose head is not their first ready job, or that have none
SELECT queue, lane FROM lanes
WHERE (priority, due, seq) IS NOT (SELECT priority, due, seq FROM jobs
                                   WHERE state = 'ready' AND jobs.queue = lanes.queue AND jobs.lane = lanes.lane
                                   ORDER BY priority, due, seq LIMIT 1);

-- name: flush  any write will do: its commit waits for the disk, and for all that was committed before
INSERT INTO facts (name, value) VALUES ('flushed', '1')
ON CONFLICT (name) DO UPDATE SET value = CAST(value + 1 AS TEXT);

-- name: ownerless  units of claims that are over and that nobody will ever settle
SELECT job, pool FROM reservations
WHERE ends IS NULL
  AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = reservations.job AND jobs.state = 'running'
                    AND jobs.fence = reservations.fence AND jobs.claim = reservations.claim);

-- name: accounts
SELECT pool, key, account FROM accounts ORDER BY pool, key;

-- name: orphans  checkpoints that went on without their jobs
SELECT count(DISTINCT job), count(*) FROM checkpoints
WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.seq = checkpoints.job);

-- name: stale_stirs  what has stirred courses that are gone
SELECT kind, count(DISTINCT course), count(*) FROM stirs
WHERE NOT EXISTS (SELECT 1 FROM courses WHERE courses.kind = stirs.kind AND courses.id = stirs.course)
GROUP BY kind;

-- name: reserved  (pool, key)
SELECT reservation FROM reservations WHERE pool = ? AND key = ?;
