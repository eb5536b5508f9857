-- Jobs come in. Plain jobs (no unique key) of a group go in through `add_plain`.

-- name: answered  (carray of ids, now, boot) what ids seen before were told
SELECT id, 'accepted', id FROM jobs WHERE id IN carray(?1)
UNION ALL
SELECT id, verdict, job FROM remembered WHERE id IN carray(?1) AND (until > ?2 OR on_boot > ?3);

-- name: add_plain
INSERT INTO jobs (seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: lone  (id, queue, task, payload, priority, lane, now, expires, timeout, trace, tags)
INSERT INTO jobs (seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags)
SELECT 1 + max(coalesce((SELECT max(seq) FROM jobs), 0),
               coalesce((SELECT value FROM counters WHERE queue = '' AND name = 'seq'), 0)),
       ?1, ?2, ?3, ?4, 'ready', ?5, ?6, ?7, ?7, ?8, ?9, ?10, ?11
WHERE NOT EXISTS (SELECT 1 FROM remembered WHERE id = ?1)
ON CONFLICT (id) DO NOTHING;

-- name: holders  (queue, unique_key) newest first
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for
FROM jobs WHERE unique_key IS NOT NULL AND queue = ? AND unique_key = ? ORDER BY seq DESC;
