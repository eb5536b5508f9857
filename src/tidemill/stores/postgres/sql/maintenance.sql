-- Describes, checks and vacuums the database.

-- name: server_info
-- $1 schema
SELECT current_setting('server_version') AS server,
    current_setting('fsync') = 'on' AS flushes,
    current_setting('synchronous_commit') <> 'off' AS waits,
    current_setting('autovacuum') = 'on' AS vacuums,
    current_setting('max_connections')::int AS connections,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connected,
    (SELECT max(version) FROM tidemill.migrations) AS version,
    (
        SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
        WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
    ) AS bytes;

-- name: oldest (the transaction that has kept dead rows from being removed for longest)
SELECT pid, application_name, extract(epoch FROM clock_timestamp() - xact_start) AS seconds
FROM pg_stat_activity
WHERE backend_xmin IS NOT NULL AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
    AND backend_type = 'client backend'
ORDER BY age(backend_xmin) DESC LIMIT 1;

-- name: tables
-- $1 schema
SELECT relname::text AS name FROM pg_class
WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
ORDER BY relname;

-- name: dead (dead rows of tables that are worth a vacuum)
-- $1 schema, $2 dead rows, $3 share of live rows
SELECT relname::text AS name, n_dead_tup AS dead FROM pg_stat_all_tables
WHERE schemaname = $1 AND n_dead_tup > $2 + $3 * n_live_tup
ORDER BY relname;

-- name: use_snapshot
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: avoid_nested_loops (row estimates may be wrong: a nested loop over two large tables takes minutes)
SET LOCAL enable_nestloop = off;

-- name: wrong_counts (queues and states with a wrong count)
SELECT queue, state, counted.jobs AS stored, COALESCE(recounted.jobs, 0) AS has FROM (
    SELECT queue, state, sum(jobs)::bigint AS jobs FROM tidemill.counts GROUP BY queue, state
) AS counted FULL JOIN (
    SELECT queue, CASE WHEN state = 'scheduled' AND attempts > 0 THEN 'retrying' ELSE state END AS state,
        count(*) AS jobs
    FROM tidemill.jobs GROUP BY 1, 2
) AS recounted USING (queue, state)
WHERE COALESCE(counted.jobs, 0) <> COALESCE(recounted.jobs, 0) ORDER BY queue, state;

-- name: lost_lanes (lanes with ready jobs that no claim would find)
SELECT DISTINCT r.queue, r.lane FROM tidemill.ready AS r
WHERE NOT EXISTS (SELECT FROM tidemill.lanes AS l WHERE l.queue = r.queue AND l.lane = r.lane);

-- name: wrong_heads (lanes whose head is not their first ready job; plain jobs have none)
SELECT l.queue, l.lane FROM tidemill.lanes AS l
LEFT JOIN LATERAL (
    SELECT r.priority, r.seq FROM tidemill.ready AS r
    WHERE r.queue = l.queue AND r.lane = l.lane ORDER BY r.priority, r.due, r.seq LIMIT 1
) AS head ON true
WHERE l.lane <> '' AND (l.priority, l.seq) IS DISTINCT FROM (head.priority, head.seq);

-- name: misplaced_jobs (ready jobs in neither `ready` nor a claim, or in both, or with other values in `ready`)
SELECT j.id FROM tidemill.jobs AS j
LEFT JOIN tidemill.ready AS r ON r.id = j.id
LEFT JOIN tidemill.bulk_claimed AS f ON f.id = j.id
WHERE j.state = 'ready' AND (
    (r.id IS NULL) = (f.id IS NULL)
    OR (r.queue, r.lane, r.priority, r.due, r.seq, r.fence, r.expires)
        IS DISTINCT FROM (j.queue, j.lane, j.priority, j.due, j.seq, j.fence, j.expires) AND f.id IS NULL
)
UNION ALL
SELECT r.id FROM tidemill.ready AS r
WHERE NOT EXISTS (SELECT FROM tidemill.jobs AS j WHERE j.id = r.id AND j.state = 'ready');

-- name: wrong_claim_counts (claims with more or fewer jobs than they count)
SELECT c.fence, c.open_jobs, count(f.id) AS jobs FROM tidemill.claims AS c
LEFT JOIN tidemill.bulk_claimed AS f ON f.fence = c.fence
GROUP BY c.fence HAVING count(f.id) <> c.open_jobs OR c.open_jobs = 0;

-- name: orphaned_reservations (units of ended claims that no worker will settle)
SELECT r.job, r.pool FROM tidemill.reservations AS r
WHERE NOT EXISTS (
        SELECT FROM tidemill.jobs AS j
        WHERE j.id = r.job AND j.state = 'running' AND j.fence = r.fence AND j.claim = r.claim
    )
    AND NOT EXISTS (
        SELECT FROM tidemill.abandoned_units AS u
        WHERE u.job = r.job AND u.fence = r.fence AND u.claim = r.claim
    );

-- name: pools
SELECT a.pool, a.key, a.account, p.declared,
    ARRAY(SELECT r.reserved FROM tidemill.reservations AS r WHERE r.pool = a.pool AND r.key = a.key) AS reserved
FROM tidemill.accounts AS a JOIN tidemill.pools AS p ON p.name = a.pool
ORDER BY a.pool, a.key;

-- name: stale_work (worklist rows of deleted documents)
SELECT s.kind, count(DISTINCT s.document) AS documents, count(*) AS worklist FROM tidemill.worklist AS s
WHERE NOT EXISTS (SELECT FROM tidemill.documents AS c WHERE c.kind = s.kind AND c.id = s.document)
GROUP BY s.kind ORDER BY s.kind;

-- name: orphans (details of deleted jobs)
SELECT 'attempts' AS what, count(DISTINCT o.job) AS jobs, count(*) AS kept FROM tidemill.attempts AS o
WHERE NOT EXISTS (SELECT FROM tidemill.jobs AS j WHERE j.id = o.job)
UNION ALL
SELECT 'log lines', count(DISTINCT o.job), count(*) FROM tidemill.logs AS o
WHERE NOT EXISTS (SELECT FROM tidemill.jobs AS j WHERE j.id = o.job)
UNION ALL
SELECT 'checkpoints', count(DISTINCT o.job), count(*) FROM tidemill.checkpoints AS o
WHERE NOT EXISTS (SELECT FROM tidemill.jobs AS j WHERE j.id = o.job);
