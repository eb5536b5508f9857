-- Reads, on connections of readers.

-- name: history  (queue, minute)
SELECT minute, done, failed, cancelled, retried, reclaimed, dropped_early FROM history WHERE queue = ? AND minute >= ? ORDER BY minute;

-- name: logs  (id)
SELECT generation, attempt, at, line FROM logs
WHERE job = (SELECT seq FROM jobs WHERE id = ?) ORDER BY generation, attempt, number;

-- name: attempts  (id)
SELECT json_object('generation', generation, 'attempt', attempt, 'started', started, 'ended', ended,
                   'worker', worker, 'outcome', outcome, 'error', json(error))
FROM attempts
WHERE job = (SELECT seq FROM jobs WHERE id = ?) ORDER BY number;

-- name: workers  (boot)
SELECT id, host, pid, queues, concurrency, seen,
       (SELECT count(*) FROM jobs INDEXED BY jobs_running WHERE state = 'running' AND worker = workers.id)
FROM workers WHERE lease > ? ORDER BY id;

-- name: oldest_ready  (queue) the earliest due of each lane and priority; skips the jobs between
WITH RECURSIVE place (lane, priority) AS (
    SELECT lane, priority FROM lanes WHERE queue = ?1
    UNION ALL
    SELECT lane, (SELECT min(jobs.priority) FROM jobs
                  WHERE state = 'ready' AND queue = ?1 AND jobs.lane = place.lane AND jobs.priority > place.priority)
    FROM place WHERE priority IS NOT NULL
)
SELECT min((SELECT min(due) FROM jobs
            WHERE state = 'ready' AND queue = ?1 AND jobs.lane = place.lane AND jobs.priority = place.priority))
FROM place;

-- name: next_due  (queue)
SELECT min(due) FROM jobs WHERE state = 'scheduled' AND queue = ?;

-- name: retrying  (queue)
SELECT count(*) FROM jobs INDEXED BY jobs_retrying WHERE state = 'scheduled' AND attempts > 0 AND queue = ?;

-- name: last_ended  (queue) of stored jobs and of the history
SELECT max(at) FROM (
    SELECT (SELECT max(finished) FROM jobs
            WHERE finished IS NOT NULL AND queue = ?1 AND state = ends.column1
              AND (flow IS NOT NULL) = ends.column2) AS at
    FROM (VALUES ('done', 0), ('failed', 0), ('cancelled', 0), ('done', 1), ('failed', 1), ('cancelled', 1)) AS ends
    UNION ALL
    SELECT * FROM (SELECT minute * 60.0 FROM history WHERE queue = ?1 AND done + failed + cancelled > 0
                   ORDER BY minute DESC LIMIT 1)
);

-- name: ready_position  (id)
SELECT queue, lane, priority, due, seq FROM jobs WHERE id = ? AND state = 'ready';

-- name: ahead  (queue, lane, priority, due, seq, limit)
SELECT count(*) FROM (
    SELECT 1 FROM jobs
    WHERE state = 'ready' AND queue = ? AND lane = ? AND (priority, due, seq) < (?, ?, ?) LIMIT ?
);

-- name: pooled_lanes  lanes whose jobs need pools or share calls: their names have several parts
SELECT queue, lane FROM lanes WHERE instr(lane, char(31)) ORDER BY queue, lane;

-- name: priorities  (queue, lane) with the number of jobs of each, from the index alone
SELECT priority, count(*) FROM jobs INDEXED BY jobs_ready
WHERE state = 'ready' AND queue = ? AND lane = ? GROUP BY priority ORDER BY priority;

-- name: first_needs  (queue, lane, priority, limit)
SELECT needs, batching, deferred_needs FROM jobs INDEXED BY jobs_ready
WHERE state = 'ready' AND queue = ? AND lane = ? AND priority = ? ORDER BY due, seq LIMIT ?;
