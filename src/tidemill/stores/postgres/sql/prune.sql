-- Ended jobs leave by age and count; expired ones end; ids are forgotten.

-- name: expired
-- $1 wall, $2 how many
SELECT id FROM tidemill.jobs
WHERE expires IS NOT NULL AND state IN ('scheduled', 'ready', 'waiting') AND expires <= $1
ORDER BY expires, seq LIMIT $2;

-- name: droppable (ended jobs of no flow, by the counts: a million are not counted for each thousand that leave)
SELECT queue, state, sum(jobs - parts)::bigint AS jobs FROM tidemill.counts
WHERE state IN ('done', 'failed', 'cancelled') GROUP BY queue, state HAVING sum(jobs - parts) > 0;

-- name: oldest (that hold no key for a period)
-- $1 queue, $2 state, $3 wall, $4 how many
SELECT id, finished FROM tidemill.jobs
WHERE finished IS NOT NULL AND flow IS NULL AND queue = $1 AND state = $2
AND NOT (unique_holds AND COALESCE(unique_until > $3, true))
ORDER BY finished, seq LIMIT $4;

-- name: drop
-- $1 ids, $2 wall and $3 boot until when they are remembered, $4 boot id
WITH gone AS (
    DELETE FROM tidemill.jobs WHERE id = ANY($1::text[]) RETURNING id, fence, claim
), logs AS (
    DELETE FROM tidemill.logs WHERE job = ANY(ARRAY(SELECT id FROM gone))
), attempts AS (
    DELETE FROM tidemill.attempts WHERE job = ANY(ARRAY(SELECT id FROM gone))
), checkpoints AS (
    DELETE FROM tidemill.checkpoints WHERE job = ANY(ARRAY(SELECT id FROM gone))
)
INSERT INTO tidemill.remembered (id, verdict, job, fence, claim, wall, boot, boot_id)
SELECT id, 'accepted', id, fence, claim, $2, $3, $4 FROM gone
ON CONFLICT (id) DO UPDATE SET verdict = EXCLUDED.verdict, job = EXCLUDED.job, fence = EXCLUDED.fence,
    claim = EXCLUDED.claim, wall = EXCLUDED.wall, boot = EXCLUDED.boot, boot_id = EXCLUDED.boot_id;

-- name: outlived (courses, with their ended jobs, as far as they can go, and whether one is live that holds them)
-- $1 wall, $2 until, $3 kind and $4 id of the last one, $5 how many, $6 how many jobs of each
SELECT c.until, c.kind, c.id, ARRAY(
    SELECT j.id FROM tidemill.jobs AS j
    WHERE c.kind = 'flow' AND j.flow = c.id AND j.finished IS NOT NULL ORDER BY j.seq LIMIT $6::integer
) AS ended, EXISTS (
    SELECT FROM tidemill.jobs AS j WHERE c.kind = 'flow' AND j.flow = c.id AND j.finished IS NULL OFFSET 0
) AS held
FROM tidemill.courses AS c
WHERE c.until <= $1 AND (c.until, c.kind, c.id) > ($2, $3, $4) ORDER BY c.until, c.kind, c.id LIMIT $5::integer;

-- name: forget_courses
-- $1 kinds, $2 ids
WITH gone AS (
    DELETE FROM tidemill.courses AS c USING unnest($1::text[], $2::text[]) AS w (kind, id)
    WHERE c.named = ANY(ARRAY[w.kind || ':' || w.id])
)
DELETE FROM tidemill.stirs WHERE number = ANY(ARRAY(
    SELECT s.number FROM unnest($1::text[], $2::text[]) AS w (kind, id)
    CROSS JOIN LATERAL (
        SELECT o.number FROM tidemill.stirs AS o WHERE o.kind = w.kind AND o.course = w.id OFFSET 0
    ) AS s
));

-- name: remember_courses
-- $1 ids under which they are remembered, $2 their own, $3 wall and $4 boot until when, $5 boot id
INSERT INTO tidemill.remembered (id, verdict, job, fence, claim, wall, boot, boot_id)
SELECT w.id, 'accepted', w.course, 0, 0, $3, $4, $5 FROM unnest($1::text[], $2::text[]) AS w (id, course)
ON CONFLICT (id) DO UPDATE SET verdict = EXCLUDED.verdict, job = EXCLUDED.job, fence = EXCLUDED.fence,
    claim = EXCLUDED.claim, wall = EXCLUDED.wall, boot = EXCLUDED.boot, boot_id = EXCLUDED.boot_id;

-- name: stir (flows that stay, though jobs of theirs are gone)
-- $1 flows, $2 jobs
INSERT INTO tidemill.stirs (kind, course, job)
SELECT 'flow', * FROM unnest($1::text[], $2::text[]);

-- name: forget_ids
-- $1 wall, $2 boot, $3 boot id, $4 how many
DELETE FROM tidemill.remembered WHERE id = ANY(ARRAY(
    SELECT id FROM tidemill.remembered WHERE wall <= $1 AND (boot_id <> $3 OR boot <= $2)
    ORDER BY wall LIMIT $4
)) RETURNING 1;

-- name: forget_minutes
-- $1 the oldest that is kept
WITH pools AS (DELETE FROM tidemill.pool_history WHERE minute < $1)
DELETE FROM tidemill.history WHERE minute < $1;

-- name: fold_minutes (every step has appended a row)
-- $1 from, $2 to
WITH many AS MATERIALIZED (
    SELECT queue, minute FROM tidemill.history WHERE minute >= $1 AND minute < $2
    GROUP BY queue, minute HAVING count(*) > 1
), folded AS (
    DELETE FROM tidemill.history AS h USING many AS m
    WHERE h.queue = m.queue AND h.minute = m.minute RETURNING h.*
)
INSERT INTO tidemill.history (queue, minute, done, failed, cancelled, retried, reclaimed, dropped_early)
SELECT queue, minute, sum(done), sum(failed), sum(cancelled), sum(retried), sum(reclaimed), sum(dropped_early)
FROM folded GROUP BY queue, minute;

-- name: fold_counts (those that somebody else is folding are passed over)
WITH folded AS (
    DELETE FROM tidemill.counts WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM tidemill.counts FOR UPDATE SKIP LOCKED
    )) RETURNING queue, state, jobs, parts
)
INSERT INTO tidemill.counts (queue, state, jobs, parts)
SELECT queue, state, sum(jobs), sum(parts) FROM folded GROUP BY queue, state
HAVING sum(jobs) <> 0 OR sum(parts) <> 0;

-- name: note_early (jobs that left by count before their age was over)
-- $1 minute, $2 queues, $3 how many
INSERT INTO tidemill.history (queue, minute, dropped_early)
SELECT w.queue, $1, w.jobs FROM unnest($2::text[], $3::text[]::bigint[]) AS w (queue, jobs);

-- name: forget_unheard
-- $1 wall
DELETE FROM tidemill.unheard WHERE since <= $1;

-- name: forget_workers
-- $1 boot
DELETE FROM tidemill.workers AS w WHERE w.lease < $1 AND NOT EXISTS (
    SELECT FROM tidemill.jobs AS j WHERE j.state = 'running' AND j.worker = w.id
) AND NOT EXISTS (SELECT FROM tidemill.claims AS c WHERE c.worker = w.id);

-- name: longest_unseen
-- $1 wall, $2 how many
SELECT a.pool, a.key, a.account, p.declared, p.override,
    EXISTS (SELECT FROM tidemill.reservations AS r WHERE r.pool = a.pool AND r.key = a.key) AS is_held
FROM tidemill.accounts AS a JOIN tidemill.pools AS p ON p.name = a.pool
WHERE a.key <> '' AND a.looked < $1 ORDER BY a.looked, a.pool, a.key LIMIT $2;

-- name: forget_accounts
-- $1 pools, $2 keys
DELETE FROM tidemill.accounts AS a USING unnest($1::text[], $2::text[]) AS w (pool, key)
WHERE a.pool = w.pool AND a.key = w.key;

-- name: look_at_accounts
-- $1 pools, $2 keys, $3 wall
UPDATE tidemill.accounts AS a SET looked = $3 FROM unnest($1::text[], $2::text[]) AS w (pool, key)
WHERE a.pool = w.pool AND a.key = w.key;
