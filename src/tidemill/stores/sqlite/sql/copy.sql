-- Exports to another store, and imports from one.

-- name: jobs  (after, limit) oldest first
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, deferred_needs, flow
FROM jobs WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: ids  (after, now, boot, limit) known ids
SELECT id, verdict, job, fence, claim FROM known_ids
WHERE id > ? AND (until > ? OR until_boot > ?) ORDER BY id LIMIT ?;

-- name: queue  (name, declared, override, pause)
INSERT OR REPLACE INTO queues (name, declared, override, pause) VALUES (?, ?, ?, ?);

-- name: pool  (name, declared, override)
INSERT OR REPLACE INTO pools (name, declared, override) VALUES (?, ?, ?);

-- name: attempt  (job, number, generation, attempt, started, ended, worker, outcome, error)
INSERT INTO attempts (job, number, generation, attempt, started, ended, worker, outcome, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: arrival  (id, task, payload, options, arrived)
INSERT INTO arrivals (id, task, payload, options, arrived) VALUES (?, ?, ?, ?, ?);

-- name: fence  (fence) the highest one used
INSERT INTO counters (queue, name, value) VALUES ('', 'fence', ?)
ON CONFLICT (queue, name) DO UPDATE SET value = max(value, excluded.value);
