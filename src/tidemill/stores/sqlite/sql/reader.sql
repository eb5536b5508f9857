-- Reading, on a connection of its own.

-- name: counts
SELECT queue, name, value FROM counters WHERE queue <> '';

-- name: history  (queue, minute)
SELECT minute, done, failed, cancelled, retried FROM history WHERE queue = ? AND minute >= ? ORDER BY minute;

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
