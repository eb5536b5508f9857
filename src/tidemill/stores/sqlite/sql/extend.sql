-- Heartbeats: renew leases, save progress, notes and log lines.

-- name: current_claims  (carray of ids) the columns that a heartbeat needs
SELECT id, seq, generation, attempts, fence, claim FROM jobs WHERE id IN carray(?) AND state = 'running';

-- name: renew  (lease, carray of seqs)
UPDATE jobs SET lease = ? WHERE seq IN carray(?);

-- name: report  (progress, note, seq)
UPDATE jobs SET progress = coalesce(?, progress), note = coalesce(?, note) WHERE seq = ?;

-- name: log  (job, generation, attempt, job, generation, attempt, at, line)
INSERT INTO logs (job, generation, attempt, number, at, line)
VALUES (?, ?, ?, (SELECT coalesce(max(number), 0) + 1 FROM logs WHERE job = ? AND generation = ? AND attempt = ?),
        ?, ?);

-- name: delete_old_lines  (job, generation, attempt, job, generation, attempt) keeps the last 200
DELETE FROM logs
WHERE job = ? AND generation = ? AND attempt = ?
  AND number <= (SELECT max(number) - 200 FROM logs WHERE job = ? AND generation = ? AND attempt = ?);

-- name: unlisted  (worker, received) all running jobs of the worker up to that claim
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, deferred_needs, flow
FROM jobs INDEXED BY jobs_running WHERE state = 'running' AND worker = ? AND number <= ?
ORDER BY seq;

-- name: save_worker  (worker, lease, seen, host, pid, queues, concurrency)
INSERT INTO workers (id, number, lease, seen, host, pid, queues, concurrency)
VALUES (?, 0, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET lease = excluded.lease, seen = excluded.seen, host = excluded.host, pid = excluded.pid,
    queues = excluded.queues, concurrency = excluded.concurrency;
