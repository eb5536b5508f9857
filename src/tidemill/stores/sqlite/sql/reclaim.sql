-- Reclaim: running jobs whose lease has expired, found by state; leases have no index.

-- name: overdue  (boot, json array of dead workers)
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, deferred_needs, flow
FROM jobs INDEXED BY jobs_running
WHERE state = 'running' AND (lease <= ?1 OR worker IN (SELECT value FROM json_each(?2)))
ORDER BY seq;

-- name: end_workers  (json array of dead workers)
UPDATE workers SET lease = 0 WHERE id IN (SELECT value FROM json_each(?));

-- name: end_leases  leases and blocks of the previous boot
UPDATE jobs INDEXED BY jobs_running SET lease = 0 WHERE state = 'running';
UPDATE workers SET lease = 0;
UPDATE leaders SET lease = 0;
UPDATE known_ids SET until_boot = 0;
UPDATE reservations SET abandoned_until = 0 WHERE abandoned_until IS NOT NULL;
UPDATE lanes SET blocked = CASE blocked WHEN 2 THEN 0 ELSE blocked END, wake_at = 0, waits_for = '' WHERE wake_at > 0;
DELETE FROM blocks;

-- name: boot
SELECT value FROM meta WHERE name = 'boot';

-- name: set_boot  (boot id)
INSERT INTO meta (name, value) VALUES ('boot', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value;
