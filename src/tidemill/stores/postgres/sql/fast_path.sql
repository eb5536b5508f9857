-- The fast path. The functions are in schema/0001-4-fast-path.sql.

-- name: insert
SELECT tidemill.insert_plain($1, $2, $3, $4::text[], $5, $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[]::integer[], $11::text[]::double precision[], $12::text[]::double precision[], $13::text[]::double precision[],
    $14::text[]::double precision[], $15::text[], $16::text[]) AS inserted;

-- name: insert_one (for one job, on a session that plans for indexes)
-- $1 wall, $2 queue, $3 id, $4 task, $5 payload, $6 priority, $7 delay, $8 at, $9 expires, $10 timeout, $11 trace,
-- $12 tags
WITH clock AS MATERIALIZED (
    SELECT COALESCE($1::double precision, extract(epoch FROM clock_timestamp()) + c.skew) AS wall
    FROM tidemill.clock AS c
    WHERE EXISTS (SELECT FROM tidemill.queues AS q WHERE q.name = $2 AND q.fast_insert)
    AND NOT EXISTS (SELECT FROM tidemill.queue_settings_lock FOR SHARE)
    AND NOT EXISTS (SELECT FROM tidemill.known_ids AS r WHERE r.id = $3)
    AND NOT EXISTS (SELECT FROM tidemill.jobs AS j WHERE j.id = $3)
), opened AS (
    UPDATE tidemill.lanes AS l SET vacant = false, served = (SELECT last_value FROM tidemill.picks)
    FROM clock
    WHERE l.queue = $2 AND l.lane = '' AND l.vacant AND COALESCE($8::double precision, clock.wall + $7::double precision) <= clock.wall
), written_jobs AS (
    INSERT INTO tidemill.jobs (
        seq, id, queue, task, payload, state, priority, created, due, expires, timeout, trace, tags
    )
    SELECT nextval('tidemill.job_seqs'), $3, $2, $4, $5,
        CASE WHEN COALESCE($8, wall + $7) > wall THEN 'scheduled' ELSE 'ready' END,
        $6, wall, GREATEST(COALESCE($8, wall + $7), wall), wall + $9, $10, $11, $12
    FROM clock
    ON CONFLICT (id) DO NOTHING
    RETURNING queue, lane, priority, due, seq, id, fence, expires, state
), written_ready AS (
    INSERT INTO tidemill.ready (queue, lane, priority, due, seq, id, fence, expires)
    SELECT queue, lane, priority, due, seq, id, fence, expires FROM written_jobs WHERE state = 'ready'
)
SELECT 1 AS inserted FROM written_jobs;

-- name: claim
SELECT * FROM tidemill.claim_plain($1, $2, $3, $4, $5, $6::text[], $7::text[]::integer[], $8, $9, $10);

-- name: settle
SELECT unsettled::text[], wakes, marked, wall, boot, epoch FROM tidemill.settle_plain(
    $1, $2, $3, $4::text[], $5::text[]::bigint[], $6::text[]::bigint[], $7::text[], $8::text[], $9::text[], $10::text[],
    $11::text[]::double precision[], $12::text[]::integer[]);

-- name: settle_and_claim (claims nothing before everything is settled)
SELECT c.*, s.unsettled::text[], s.wakes, s.marked
FROM tidemill.settle_plain(
    $1, $2, $3, $4::text[], $5::text[]::bigint[], $6::text[]::bigint[], $7::text[], $8::text[], $9::text[], $10::text[],
    $11::text[]::double precision[], $12::text[]::integer[]) AS s
CROSS JOIN LATERAL tidemill.claim_plain(
    $1, $2, $3, CASE WHEN s.unsettled = '{}' THEN $13::text END, $14, $15::text[], $16::text[]::integer[], $17, $18, $19
) AS c;

-- name: extend
SELECT plain, current::text[], wall, boot, epoch FROM tidemill.extend_plain(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text[], $12::text[]::bigint[], $13::text[]::bigint[], $14::text[]::boolean[],
    $15::text[]::double precision[], $16::text[], $17::text[], $18::text[]::double precision[], $19::text[]);
