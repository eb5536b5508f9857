-- Prune: deletes ended jobs by age and count, finds expired jobs, deletes old ids.

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

-- name: expired_documents  (now, until, kind, id, limit) after the given one
SELECT until, kind, id FROM documents
WHERE until IS NOT NULL AND until <= ?1 AND (until, kind, id) > (?2, ?3, ?4) ORDER BY until, kind, id LIMIT ?5;

-- name: has_live_flow_job  (flow) true if a job of the flow has not ended
SELECT EXISTS (SELECT 1 FROM jobs WHERE flow IS NOT NULL AND flow ->> '$.id' = ? AND finished IS NULL);

-- name: ended_flow_jobs  (flow, limit)
SELECT seq, id, queue, state FROM jobs
WHERE flow IS NOT NULL AND flow ->> '$.id' = ? AND finished IS NOT NULL ORDER BY seq LIMIT ?;

-- name: remember_ids  (until, until_boot, carray of seqs)
INSERT OR REPLACE INTO known_ids (id, verdict, job, fence, claim, until, until_boot)
SELECT id, 'accepted', id, fence, claim, ?, ? FROM jobs WHERE seq IN carray(?);

-- name: delete  (carray of seqs)
DELETE FROM jobs WHERE seq IN carray(?);

-- name: delete_logs  (carray of seqs)
DELETE FROM logs WHERE job IN carray(?);

-- name: delete_attempts  (carray of seqs)
DELETE FROM attempts WHERE job IN carray(?);

-- name: delete_checkpoints  (carray of seqs)
DELETE FROM checkpoints WHERE job IN carray(?);

-- name: delete_known_ids  (now, limit, boot)
DELETE FROM known_ids WHERE id IN (SELECT id FROM known_ids WHERE until <= ? ORDER BY until, id LIMIT ?)
  AND until_boot <= ?;

-- name: delete_minutes  (queue, minute)
DELETE FROM history WHERE queue = ? AND minute < ?;

-- name: delete_workers  (boot)
DELETE FROM workers
WHERE lease < ? AND NOT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_running WHERE state = 'running' AND worker = workers.id);
