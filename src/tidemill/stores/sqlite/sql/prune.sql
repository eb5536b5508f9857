-- Ended jobs leave by age and count; expired ones end; ids are forgotten.

-- name: expired  (now, limit)
SELECT id FROM jobs
WHERE expires IS NOT NULL AND state IN ('scheduled', 'ready', 'waiting') AND expires <= ?
ORDER BY expires, seq LIMIT ?;

-- name: too_old  (queue, state, finished, now, limit)
SELECT seq, id, fence, claim FROM jobs
WHERE finished IS NOT NULL AND (flow IS NOT NULL) = 0 AND queue = ? AND state = ? AND finished <= ?
  AND NOT (unique_holds AND unique_until > ?)
ORDER BY finished, seq LIMIT ?;

-- name: oldest  (queue, state, now, limit)
SELECT seq, id, fence, claim FROM jobs
WHERE finished IS NOT NULL AND (flow IS NOT NULL) = 0 AND queue = ? AND state = ? AND NOT (unique_holds AND unique_until > ?)
ORDER BY finished, seq LIMIT ?;

-- name: outlived  (now, until, kind, id, limit) courses that are kept no longer, those behind the last one
SELECT until, kind, id FROM courses
WHERE until IS NOT NULL AND until <= ?1 AND (until, kind, id) > (?2, ?3, ?4) ORDER BY until, kind, id LIMIT ?5;

-- name: live_part  (flow) whether a job of it is still to end
SELECT EXISTS (SELECT 1 FROM jobs WHERE flow IS NOT NULL AND flow ->> '$.id' = ? AND finished IS NULL);

-- name: ended_parts  (flow, limit)
SELECT seq, id, queue, state FROM jobs
WHERE flow IS NOT NULL AND flow ->> '$.id' = ? AND finished IS NOT NULL ORDER BY seq LIMIT ?;

-- name: remember  (until, on_boot, carray of seqs)
INSERT OR REPLACE INTO remembered (id, verdict, job, fence, claim, until, on_boot)
SELECT id, 'accepted', id, fence, claim, ?, ? FROM jobs WHERE seq IN carray(?);

-- name: drop  (carray of seqs)
DELETE FROM jobs WHERE seq IN carray(?);

-- name: drop_logs  (carray of seqs)
DELETE FROM logs WHERE job IN carray(?);

-- name: drop_attempts  (carray of seqs)
DELETE FROM attempts WHERE job IN carray(?);

-- name: drop_checkpoints  (carray of seqs)
DELETE FROM checkpoints WHERE job IN carray(?);

-- name: forget_ids  (now, boot, limit)
DELETE FROM remembered WHERE id IN
    (SELECT id FROM remembered WHERE until <= ? AND on_boot <= ? ORDER BY until LIMIT ?);

-- name: forget_history  (queue, minute)
DELETE FROM history WHERE queue = ? AND minute < ?;

-- name: forget_workers  (boot)
DELETE FROM workers
WHERE lease < ? AND NOT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_running WHERE state = 'running' AND worker = workers.id);
