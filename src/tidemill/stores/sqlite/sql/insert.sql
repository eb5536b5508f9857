-- Insert. Plain jobs (no unique key, or a free one) go in through `add_plain`.

-- name: answered  (carray of ids, now, boot) the first answer for each known id
SELECT id, 'accepted', id FROM jobs WHERE id IN carray(?1)
UNION ALL
SELECT id, verdict, job FROM known_ids WHERE id IN carray(?1) AND (until > ?2 OR until_boot > ?3);

-- name: known  (carray of ids)
SELECT id FROM jobs WHERE id IN carray(?);

-- name: add_plain
INSERT INTO jobs (seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
                  needs, batching, flow, unique_key, unique_until, unique_holds)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: held  (queue, carray of unique keys) keys that may have a holder; the condition matches the partial index
SELECT DISTINCT unique_key FROM jobs
WHERE queue = ? AND unique_key IN carray(?)
  AND unique_key IS NOT NULL AND (unique_holds OR state IN ('scheduled', 'ready', 'waiting', 'running'));

-- name: holders  (queue, unique_key) newest first; the condition matches the partial index
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, deferred_needs, flow
FROM jobs
WHERE queue = ? AND unique_key = ?
  AND unique_key IS NOT NULL AND (unique_holds OR state IN ('scheduled', 'ready', 'waiting', 'running'))
ORDER BY seq DESC;
