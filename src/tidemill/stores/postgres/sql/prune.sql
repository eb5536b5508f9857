-- Prune: deletes ended jobs by age and count, finds expired jobs, deletes old ids.

-- name: expired
-- $1 wall, $2 limit
SELECT id FROM tidemill.jobs
WHERE expires IS NOT NULL AND state IN ('scheduled', 'ready', 'waiting') AND expires <= $1
ORDER BY expires, seq LIMIT $2;

-- name: droppable (ended jobs without a flow, from the counts: counting a million jobs takes too long)
SELECT queue, state, sum(jobs - flow_jobs)::bigint AS jobs FROM tidemill.counts
WHERE state IN ('done', 'failed', 'cancelled') GROUP BY queue, state HAVING sum(jobs - flow_jobs) > 0;

-- name: oldest (jobs that hold no unique key for a period)
-- $1 queue, $2 state, $3 wall, $4 limit
SELECT id, finished FROM tidemill.jobs
WHERE finished IS NOT NULL AND flow IS NULL AND queue = $1 AND state = $2
AND NOT (unique_holds AND COALESCE(unique_until > $3, true))
ORDER BY finished, seq LIMIT $4;

-- name: delete_jobs
-- $1 ids, $2 wall and $3 boot until when they are remembered, $4 boot id
WITH deleted AS (
    DELETE FROM tidemill.jobs WHERE id = ANY($1::text[]) RETURNING id, fence, claim
), logs AS (
    DELETE FROM tidemill.logs WHERE job = ANY(ARRAY(SELECT id FROM deleted))
), attempts AS (
    DELETE FROM tidemill.attempts WHERE job = ANY(ARRAY(SELECT id FROM deleted))
), checkpoints AS (
    DELETE FROM tidemill.checkpoints WHERE job = ANY(ARRAY(SELECT id FROM deleted))
)
INSERT INTO tidemill.known_ids (id, verdict, job, fence, claim, wall, boot, boot_id)
SELECT id, 'accepted', id, fence, claim, $2, $3, $4 FROM deleted
ON CONFLICT (id) DO UPDATE SET verdict = EXCLUDED.verdict, job = EXCLUDED.job, fence = EXCLUDED.fence,
    claim = EXCLUDED.claim, wall = EXCLUDED.wall, boot = EXCLUDED.boot, boot_id = EXCLUDED.boot_id;

-- name: expired_documents (with their ended jobs, and whether a live job keeps them)
-- $1 wall, $2 until, $3 kind and $4 id of the last one, $5 limit, $6 limit of jobs for each
SELECT c.until, c.kind, c.id, ARRAY(
    SELECT j.id FROM tidemill.jobs AS j
    WHERE c.kind = 'flow' AND j.flow = c.id AND j.finished IS NOT NULL ORDER BY j.seq LIMIT $6::integer
) AS ended, EXISTS (
    SELECT FROM tidemill.jobs AS j WHERE c.kind = 'flow' AND j.flow = c.id AND j.finished IS NULL OFFSET 0
) AS held
FROM tidemill.documents AS c
WHERE c.until <= $1 AND (c.until, c.kind, c.id) > ($2, $3, $4) ORDER BY c.until, c.kind, c.id LIMIT $5::integer;

-- name: delete_documents
-- $1 kinds, $2 ids
WITH deleted AS (
    DELETE FROM tidemill.documents AS c USING unnest($1::text[], $2::text[]) AS w (kind, id)
    WHERE c.document_key = ANY(ARRAY[w.kind || ':' || w.id])
)
DELETE FROM tidemill.worklist WHERE number = ANY(ARRAY(
    SELECT s.number FROM unnest($1::text[], $2::text[]) AS w (kind, id)
    CROSS JOIN LATERAL (
        SELECT o.number FROM tidemill.worklist AS o WHERE o.kind = w.kind AND o.document = w.id OFFSET 0
    ) AS s
));

-- name: remember_documents
-- $1 ids under which they are remembered, $2 their own, $3 wall and $4 boot until when, $5 boot id
INSERT INTO tidemill.known_ids (id, verdict, job, fence, claim, wall, boot, boot_id)
SELECT w.id, 'accepted', w.document, 0, 0, $3, $4, $5 FROM unnest($1::text[], $2::text[]) AS w (id, document)
ON CONFLICT (id) DO UPDATE SET verdict = EXCLUDED.verdict, job = EXCLUDED.job, fence = EXCLUDED.fence,
    claim = EXCLUDED.claim, wall = EXCLUDED.wall, boot = EXCLUDED.boot, boot_id = EXCLUDED.boot_id;

-- name: mark_document (flows that stay although jobs of theirs were deleted)
-- $1 flows, $2 jobs
INSERT INTO tidemill.worklist (kind, document, job)
SELECT 'flow', * FROM unnest($1::text[], $2::text[]);

-- name: delete_known_ids
-- $1 wall, $2 boot, $3 boot id, $4 limit
DELETE FROM tidemill.known_ids WHERE id = ANY(ARRAY(
    SELECT id FROM tidemill.known_ids WHERE wall <= $1 ORDER BY wall, id LIMIT $4
)) AND (boot_id <> $3 OR boot <= $2) RETURNING 1;

-- name: delete_minutes
-- $1 the oldest that is kept
WITH pools AS (DELETE FROM tidemill.pool_history WHERE minute < $1)
DELETE FROM tidemill.history WHERE minute < $1;

-- name: compact_minutes (every transaction has appended a row)
-- $1 from, $2 to
WITH repeated AS MATERIALIZED (
    SELECT queue, minute FROM tidemill.history WHERE minute >= $1 AND minute < $2
    GROUP BY queue, minute HAVING count(*) > 1
), compacted AS (
    DELETE FROM tidemill.history AS h USING repeated AS m
    WHERE h.queue = m.queue AND h.minute = m.minute RETURNING h.*
)
INSERT INTO tidemill.history (queue, minute, done, failed, cancelled, retried, reclaimed, dropped_early)
SELECT queue, minute, sum(done), sum(failed), sum(cancelled), sum(retried), sum(reclaimed), sum(dropped_early)
FROM compacted GROUP BY queue, minute;

-- name: compact_counts (skips rows that another transaction is compacting)
WITH compacted AS (
    DELETE FROM tidemill.counts WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM tidemill.counts FOR UPDATE SKIP LOCKED
    )) RETURNING queue, state, jobs, flow_jobs
)
INSERT INTO tidemill.counts (queue, state, jobs, flow_jobs)
SELECT queue, state, sum(jobs), sum(flow_jobs) FROM compacted GROUP BY queue, state
HAVING sum(jobs) <> 0 OR sum(flow_jobs) <> 0;

-- name: count_dropped_early (jobs deleted by count before their age)
-- $1 minute, $2 queues, $3 limit
INSERT INTO tidemill.history (queue, minute, dropped_early)
SELECT w.queue, $1, w.jobs FROM unnest($2::text[], $3::text[]::bigint[]) AS w (queue, jobs);

-- name: delete_unconfirmed_units
-- $1 wall
DELETE FROM tidemill.unconfirmed_units WHERE since <= $1;

-- name: delete_workers
-- $1 boot
DELETE FROM tidemill.workers AS w WHERE w.lease < $1 AND NOT EXISTS (
    SELECT FROM tidemill.jobs AS j WHERE j.state = 'running' AND j.worker = w.id
) AND NOT EXISTS (SELECT FROM tidemill.claims AS c WHERE c.worker = w.id);

-- name: unused_accounts
-- $1 wall, $2 limit
SELECT a.pool, a.key, a.account, p.declared, p.override,
    EXISTS (SELECT FROM tidemill.reservations AS r WHERE r.pool = a.pool AND r.key = a.key) AS is_held
FROM tidemill.accounts AS a JOIN tidemill.pools AS p ON p.name = a.pool
WHERE a.key <> '' AND a.last_seen < $1 ORDER BY a.last_seen, a.pool, a.key LIMIT $2;

-- name: delete_accounts
-- $1 pools, $2 keys
DELETE FROM tidemill.accounts AS a USING unnest($1::text[], $2::text[]) AS w (pool, key)
WHERE a.pool = w.pool AND a.key = w.key;

-- name: touch_accounts
-- $1 pools, $2 keys, $3 wall
UPDATE tidemill.accounts AS a SET last_seen = $3 FROM unnest($1::text[], $2::text[]) AS w (pool, key)
WHERE a.pool = w.pool AND a.key = w.key;
