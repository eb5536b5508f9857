-- Jobs whose holder fell silent, found by their state and not by an index of leases.

-- name: silent  (boot, json array of dead workers)
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, extra, flow
FROM jobs INDEXED BY jobs_running
WHERE state = 'running' AND (lease <= ?1 OR worker IN (SELECT value FROM json_each(?2)))
ORDER BY seq;

-- name: forget_dead  (json array of dead workers)
UPDATE workers SET lease = 0 WHERE id IN (SELECT value FROM json_each(?));

-- name: new_boot  leases and waits of another boot are over
UPDATE jobs INDEXED BY jobs_running SET lease = 0 WHERE state = 'running';
UPDATE workers SET lease = 0;
UPDATE leaders SET lease = 0;
UPDATE remembered SET on_boot = 0;
UPDATE reservations SET ends = 0 WHERE ends IS NOT NULL;
UPDATE lanes SET blocked = CASE blocked WHEN 2 THEN 0 ELSE blocked END, wake = 0, waits = '' WHERE wake > 0;
DELETE FROM blocks;

-- name: boot
SELECT value FROM facts WHERE name = 'boot';

-- name: set_boot  (boot id)
INSERT INTO facts (name, value) VALUES ('boot', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value;
