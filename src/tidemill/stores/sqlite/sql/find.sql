-- Jobs by filter, newest first. A filter member that is NULL does not narrow the search.

-- name: find
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for
FROM jobs
WHERE (:before IS NULL OR seq < :before)
  AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))
  AND (:queue IS NULL OR queue = :queue)
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:task IS NULL OR task = :task)
  AND (:key IS NULL OR lane = :key)
  AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(tags) WHERE value = :tag))
  AND (:since IS NULL OR created >= :since)
  AND (:until IS NULL OR created < :until)
ORDER BY seq DESC LIMIT :limit;

-- name: oldest
SELECT id FROM jobs
WHERE (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))
  AND (:queue IS NULL OR queue = :queue)
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:task IS NULL OR task = :task)
  AND (:key IS NULL OR lane = :key)
  AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(tags) WHERE value = :tag))
  AND (:since IS NULL OR created >= :since)
  AND (:until IS NULL OR created < :until)
ORDER BY seq LIMIT :limit;
