-- The locks and writes of engine transactions. load_jobs.sql explains why some rows are sorted by expressions
-- that no index has.

-- Locks and returns the jobs with these ids. Also locks their rows in `ready`, which waits for a concurrent
-- claim, and expands jobs in bulk claims.
CREATE FUNCTION tidemill.lock_jobs(ids text[]) RETURNS SETOF tidemill.jobs LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    is_ready boolean;
    claimed_ids text[];
    claimed_fences bigint[];
BEGIN
    SELECT bool_or(l.state = 'ready') INTO is_ready FROM (
        SELECT j.state FROM tidemill.jobs AS j WHERE j.id = ANY(ids) ORDER BY j.id FOR UPDATE
    ) AS l;
    IF is_ready THEN
        PERFORM FROM (
            SELECT * FROM tidemill.jobs AS o WHERE o.id = ANY(ids) AND o.state || '' = 'ready' OFFSET 0
        ) AS j CROSS JOIN LATERAL (
            SELECT FROM tidemill.ready AS r
            WHERE r.queue = j.queue AND r.lane = j.lane AND r.priority = j.priority AND r.due = j.due
            AND r.seq = j.seq FOR UPDATE
        ) AS entry;
        claimed_ids := ARRAY(
            SELECT j.id FROM tidemill.jobs AS j
            WHERE j.id = ANY(ids) AND j.state || '' = 'ready' AND (
                SELECT r.seq FROM tidemill.ready AS r
                WHERE r.queue = j.queue AND r.lane = j.lane AND r.priority = j.priority AND r.due = j.due
                AND r.seq = j.seq
            ) IS NULL
        );
        IF claimed_ids <> '{}' THEN
            SELECT array_agg(f.id), array_agg(f.fence) INTO STRICT claimed_ids, claimed_fences
            FROM tidemill.bulk_claimed AS f WHERE f.id = ANY(claimed_ids);
            PERFORM tidemill.expand_jobs(claimed_ids, claimed_fences);
        END IF;
    END IF;
    RETURN QUERY SELECT j.* FROM tidemill.jobs AS j WHERE j.id = ANY(ids);
END
$$;

-- Locks and returns all running jobs of these workers.
CREATE FUNCTION tidemill.lock_running_jobs(workers text[]) RETURNS SETOF tidemill.jobs LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidemill.expand_claims(
        ARRAY(SELECT c.fence FROM tidemill.claims AS c WHERE c.worker = ANY(workers)), wait_for_locks => true
    );
    RETURN QUERY SELECT j.* FROM tidemill.jobs AS j
    WHERE j.state = 'running' AND j.worker = ANY(workers) ORDER BY j.id || '' FOR UPDATE;
END
$$;

-- Locks and returns the first jobs whose lease has expired or whose worker is dead. Skips locked jobs: they
-- are being settled or are in their handler's transaction.
CREATE FUNCTION tidemill.lock_overdue(boot double precision, dead text[], most integer)
RETURNS SETOF tidemill.jobs LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidemill.expand_claims(ARRAY(
        SELECT c.fence FROM tidemill.claims AS c WHERE c.lease <= boot OR c.worker = ANY(dead)
    ), wait_for_locks => false);
    RETURN QUERY SELECT j.* FROM tidemill.jobs AS j
    WHERE j.state = 'running' AND (j.lease <= boot OR j.worker = ANY(dead))
    ORDER BY j.seq + 0 LIMIT most FOR UPDATE SKIP LOCKED;
END
$$;

-- Writes the changes of an engine transaction in one call. Every parameter is a list of rows, null for none.

--   plain_lanes: when the lanes '' were last served; null for one without jobs
--   changed_lanes: lanes that may have another head; lane_counts: groups with the change of their number of lanes
--   ended_claims: claims whose reservations are replaced by `new_reservations`
--   settled_abandoned, confirmed: claims whose abandoned or unconfirmed units are settled
--   new_work, done_work: new rows of the worklist, and the numbers of rows that an advance has processed
CREATE FUNCTION tidemill.commit_changes(
    deleted_jobs text[], new_jobs json, new_queues json, plain_lanes json, new_lanes json, deleted_lanes json,
    changed_lanes json, lane_counts json, saved_blocks json, deleted_blocks json, picked bigint, saved_ids json, admitted bigint[],
    new_workers json, new_checkpoints json, deleted_checkpoints json,
    new_attempts json, attempts_kept integer, new_logs json, logs_kept integer, minutes json, new_pools json,
    new_accounts json, ended_claims json, new_reservations json, abandoned json, settled_abandoned json, unconfirmed json, confirmed json,
    pool_minutes json, new_documents json, deleted_documents json, new_work json, done_work bigint[]
) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    plain_lane record;
    added tidemill.ready[];
BEGIN
    IF new_queues IS NOT NULL THEN
        IF EXISTS (
            SELECT FROM json_populate_recordset(NULL::tidemill.queues, new_queues) AS n
            LEFT JOIN tidemill.queues AS q ON q.name = n.name
            WHERE NOT n.fast_insert AND q.fast_insert IS NOT FALSE OR NOT n.fast_claim AND q.fast_claim IS NOT FALSE
        ) THEN
            LOCK TABLE tidemill.queue_settings_lock IN EXCLUSIVE MODE;
        END IF;
        INSERT INTO tidemill.queues (name, declared, override, pause, fast_insert, fast_claim, wakes_on_end)
        SELECT name, declared, override, pause, fast_insert, fast_claim, wakes_on_end
        FROM json_populate_recordset(NULL::tidemill.queues, new_queues)
        ON CONFLICT (name) DO UPDATE SET declared = EXCLUDED.declared, override = EXCLUDED.override,
            pause = EXCLUDED.pause, fast_insert = EXCLUDED.fast_insert, fast_claim = EXCLUDED.fast_claim,
            wakes_on_end = EXCLUDED.wakes_on_end;
        INSERT INTO tidemill.lanes (queue, lane, pool_set, served, vacant)
        SELECT q.name, '', '', 0, true FROM json_to_recordset(new_queues) AS q (name text)
        ON CONFLICT DO NOTHING;
    END IF;
    -- All of them are deleted from `ready` at their old position; the ones that are ready now are added
    -- below.
    IF deleted_jobs IS NOT NULL OR new_jobs IS NOT NULL THEN
        DELETE FROM tidemill.ready AS t WHERE t.ctid = ANY(ARRAY(
            SELECT (
                SELECT r.ctid FROM tidemill.ready AS r
                WHERE r.queue = j.queue AND r.lane = j.lane AND r.priority = j.priority AND r.due = j.due
                AND r.seq = j.seq
            )
            FROM tidemill.jobs AS j
            WHERE j.id = ANY(deleted_jobs || ARRAY(SELECT n.id FROM json_to_recordset(new_jobs) AS n (id text)))
            AND j.state || '' = 'ready'
        ));
    END IF;
    IF deleted_jobs IS NOT NULL THEN
        DELETE FROM tidemill.logs WHERE job = ANY(deleted_jobs);
        DELETE FROM tidemill.attempts WHERE job = ANY(deleted_jobs);
        DELETE FROM tidemill.checkpoints WHERE job = ANY(deleted_jobs);
        DELETE FROM tidemill.jobs WHERE id = ANY(deleted_jobs);
    END IF;
    IF new_jobs IS NOT NULL THEN
        INSERT INTO tidemill.jobs (
            seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace,
            tags, attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence,
            claim, worker, number, lease, alone, started, finished, result, error, reason, progress,
            note, part, unknown_for, needs, batching, call, deferred_needs, flow, in_flow
        )
        SELECT
            seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace,
            tags, attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence,
            claim, worker, number, lease, alone, started, finished, result, error, reason, progress,
            note, part, unknown_for, needs, batching, call, deferred_needs, flow, in_flow
        FROM json_populate_recordset(NULL::tidemill.jobs, new_jobs)
        ON CONFLICT (id) DO UPDATE SET
            seq = EXCLUDED.seq, queue = EXCLUDED.queue, task = EXCLUDED.task, payload = EXCLUDED.payload,
            state = EXCLUDED.state, priority = EXCLUDED.priority, lane = EXCLUDED.lane,
            created = EXCLUDED.created, due = EXCLUDED.due, expires = EXCLUDED.expires,
            timeout = EXCLUDED.timeout, trace = EXCLUDED.trace, tags = EXCLUDED.tags,
            attempts = EXCLUDED.attempts, crashes = EXCLUDED.crashes, generation = EXCLUDED.generation,
            unique_key = EXCLUDED.unique_key, unique_until = EXCLUDED.unique_until,
            unique_holds = EXCLUDED.unique_holds, after = EXCLUDED.after, fence = EXCLUDED.fence,
            claim = EXCLUDED.claim, worker = EXCLUDED.worker, number = EXCLUDED.number,
            lease = EXCLUDED.lease, alone = EXCLUDED.alone, started = EXCLUDED.started,
            finished = EXCLUDED.finished, result = EXCLUDED.result, error = EXCLUDED.error,
            reason = EXCLUDED.reason, progress = EXCLUDED.progress, note = EXCLUDED.note,
            part = EXCLUDED.part, unknown_for = EXCLUDED.unknown_for, needs = EXCLUDED.needs,
            batching = EXCLUDED.batching, call = EXCLUDED.call, deferred_needs = EXCLUDED.deferred_needs, flow = EXCLUDED.flow, in_flow = EXCLUDED.in_flow;
        WITH written_ready AS (
            INSERT INTO tidemill.ready AS r (queue, lane, priority, due, seq, id, fence, expires)
            SELECT queue, lane, priority, due, seq, id, fence, expires
            FROM json_populate_recordset(NULL::tidemill.jobs, new_jobs) WHERE state = 'ready'
            RETURNING r AS row
        )
        SELECT array_agg(i.row) INTO added FROM written_ready AS i;
        PERFORM tidemill.reset_claim_cursors(added);
    END IF;
    -- One by one: there are few, and a join with a list might be planned from the other side.
    FOR plain_lane IN SELECT w.queue, w.served FROM json_to_recordset(plain_lanes) AS w (queue text, served bigint) LOOP
        UPDATE tidemill.lanes AS l
        SET served = COALESCE(plain_lane.served, l.served), vacant = plain_lane.served IS NULL
        WHERE l.queue = plain_lane.queue AND l.lane = '';
    END LOOP;
    IF new_lanes IS NOT NULL THEN
        INSERT INTO tidemill.lanes (
            queue, lane, pool_set, served, pool, key, until, retry_at, blocked_priority, missing_jobs, batch_due_at
        )
        SELECT
            queue, lane, pool_set, served, pool, key, until, retry_at, blocked_priority, missing_jobs, batch_due_at
        FROM json_populate_recordset(NULL::tidemill.lanes, new_lanes)
        ON CONFLICT (queue, lane) DO UPDATE SET
            pool_set = EXCLUDED.pool_set, served = EXCLUDED.served, pool = EXCLUDED.pool, key = EXCLUDED.key,
            until = EXCLUDED.until, retry_at = EXCLUDED.retry_at, blocked_priority = EXCLUDED.blocked_priority,
            missing_jobs = EXCLUDED.missing_jobs, batch_due_at = EXCLUDED.batch_due_at;
    END IF;
    IF deleted_lanes IS NOT NULL THEN
        DELETE FROM tidemill.lanes AS t
        USING json_to_recordset(deleted_lanes) AS w (queue text, lane text)
        WHERE t.queue = w.queue AND t.lane = w.lane;
    END IF;
    IF changed_lanes IS NOT NULL THEN
        UPDATE tidemill.lanes AS l SET priority = h.priority, seq = h.seq
        FROM json_to_recordset(changed_lanes) AS w (queue text, lane text)
        CROSS JOIN LATERAL (
            SELECT r.priority, r.seq FROM tidemill.ready AS r
            WHERE r.queue = w.queue AND r.lane = w.lane ORDER BY r.priority, r.due, r.seq LIMIT 1
        ) AS h
        WHERE l.queue = w.queue AND l.lane = w.lane
        AND (l.priority, l.seq) IS DISTINCT FROM (h.priority, h.seq);
    END IF;
    IF lane_counts IS NOT NULL THEN
        INSERT INTO tidemill.blocks AS g (queue, pool_set, lanes)
        SELECT queue, pool_set, lanes FROM json_populate_recordset(NULL::tidemill.blocks, lane_counts)
        ON CONFLICT (queue, pool_set) DO UPDATE SET lanes = g.lanes + EXCLUDED.lanes;
    END IF;
    IF saved_blocks IS NOT NULL THEN
        INSERT INTO tidemill.blocks (queue, pool_set, lanes, pool, key, until, retry_at, blocked_priority)
        SELECT queue, pool_set, 0, pool, key, until, retry_at, blocked_priority
        FROM json_populate_recordset(NULL::tidemill.blocks, saved_blocks)
        ON CONFLICT (queue, pool_set) DO UPDATE SET pool = EXCLUDED.pool, key = EXCLUDED.key,
            until = EXCLUDED.until, retry_at = EXCLUDED.retry_at, blocked_priority = EXCLUDED.blocked_priority;
    END IF;
    IF deleted_blocks IS NOT NULL THEN
        DELETE FROM tidemill.blocks AS g USING json_to_recordset(deleted_blocks) AS w (queue text, pool_set text)
        WHERE g.queue = w.queue AND g.pool_set = w.pool_set AND g.lanes <= 0 AND g.retry_at IS NULL;
    END IF;
    IF picked > 0 THEN
        PERFORM setval('tidemill.picks', p.last_value + picked) FROM tidemill.picks AS p;
    END IF;
    IF saved_ids IS NOT NULL THEN
        INSERT INTO tidemill.known_ids (
            id, verdict, job, fence, claim, wall, boot, boot_id
        )
        SELECT
            id, verdict, job, fence, claim, wall, boot, boot_id
        FROM json_populate_recordset(NULL::tidemill.known_ids, saved_ids)
        ON CONFLICT (id) DO UPDATE SET
            verdict = EXCLUDED.verdict, job = EXCLUDED.job, fence = EXCLUDED.fence,
            claim = EXCLUDED.claim, wall = EXCLUDED.wall, boot = EXCLUDED.boot,
            boot_id = EXCLUDED.boot_id;
    END IF;
    IF admitted IS NOT NULL THEN
        DELETE FROM tidemill.arrivals WHERE seq = ANY(admitted);
    END IF;
    -- A claim on the fast path may have added the worker since it was looked up.
    IF new_workers IS NOT NULL THEN
        INSERT INTO tidemill.workers AS w (
            id, number, lease, seen, host, pid, queues, concurrency
        )
        SELECT
            id, number, lease, seen, host, pid, queues, concurrency
        FROM json_populate_recordset(NULL::tidemill.workers, new_workers)
        ON CONFLICT (id) DO UPDATE SET
            number = GREATEST(w.number, EXCLUDED.number), lease = EXCLUDED.lease, seen = EXCLUDED.seen,
            host = EXCLUDED.host, pid = EXCLUDED.pid, queues = EXCLUDED.queues, concurrency = EXCLUDED.concurrency;
    END IF;
    IF new_checkpoints IS NOT NULL THEN
        INSERT INTO tidemill.checkpoints (
            job, name, arguments, paid, begun, fence, claim, try, kept, result, unknown
        )
        SELECT
            job, name, arguments, paid, begun, fence, claim, try, kept, result, unknown
        FROM json_populate_recordset(NULL::tidemill.checkpoints, new_checkpoints)
        ON CONFLICT (job, name, arguments) DO UPDATE SET
            paid = EXCLUDED.paid, begun = EXCLUDED.begun, fence = EXCLUDED.fence, claim = EXCLUDED.claim,
            try = EXCLUDED.try, kept = EXCLUDED.kept, result = EXCLUDED.result,
            unknown = EXCLUDED.unknown;
    END IF;
    IF deleted_checkpoints IS NOT NULL THEN
        DELETE FROM tidemill.checkpoints AS t
        USING json_to_recordset(deleted_checkpoints) AS w (job text, name text, arguments text)
        WHERE t.job = w.job AND t.name = w.name AND t.arguments = w.arguments;
    END IF;
    IF new_attempts IS NOT NULL THEN
        INSERT INTO tidemill.attempts (
            job, generation, attempt, started, ended, worker, outcome, error
        )
        SELECT
            job, generation, attempt, started, ended, worker, outcome, error
        FROM json_populate_recordset(NULL::tidemill.attempts, new_attempts);
    END IF;
    IF new_attempts IS NOT NULL THEN
        DELETE FROM tidemill.attempts AS a
        USING (
            SELECT w.job, (
                SELECT k.number FROM tidemill.attempts AS k WHERE k.job = w.job
                ORDER BY k.number DESC OFFSET attempts_kept LIMIT 1
            ) AS number
            FROM (SELECT DISTINCT n.job FROM json_to_recordset(new_attempts) AS n (job text)) AS w
        ) AS old
        WHERE a.job = old.job AND a.number <= old.number;
    END IF;
    IF new_logs IS NOT NULL THEN
        INSERT INTO tidemill.logs (
            job, generation, attempt, at, line
        )
        SELECT
            job, generation, attempt, at, line
        FROM json_populate_recordset(NULL::tidemill.logs, new_logs);
    END IF;
    IF new_logs IS NOT NULL THEN
        DELETE FROM tidemill.logs AS l
        USING (
            SELECT w.job, w.generation, w.attempt, (
                SELECT k.number FROM tidemill.logs AS k
                WHERE k.job = w.job AND k.generation = w.generation AND k.attempt = w.attempt
                ORDER BY k.number DESC OFFSET logs_kept LIMIT 1
            ) AS number
            FROM (
                SELECT DISTINCT n.job, n.generation, n.attempt
                FROM json_to_recordset(new_logs) AS n (job text, generation integer, attempt integer)
            ) AS w
        ) AS old
        WHERE l.job = old.job AND l.generation = old.generation AND l.attempt = old.attempt
        AND l.number <= old.number;
    END IF;
    IF minutes IS NOT NULL THEN
        INSERT INTO tidemill.history (queue, minute, done, failed, cancelled, retried, reclaimed, dropped_early)
        SELECT queue, minute, COALESCE(done, 0), COALESCE(failed, 0), COALESCE(cancelled, 0),
            COALESCE(retried, 0), COALESCE(reclaimed, 0), COALESCE(dropped_early, 0)
        FROM json_populate_recordset(NULL::tidemill.history, minutes);
    END IF;
    IF new_pools IS NOT NULL THEN
        INSERT INTO tidemill.pools (
            name, declared, override
        )
        SELECT
            name, declared, override
        FROM json_populate_recordset(NULL::tidemill.pools, new_pools)
        ON CONFLICT (name) DO UPDATE SET
            declared = EXCLUDED.declared, override = EXCLUDED.override;
    END IF;
    IF new_accounts IS NOT NULL THEN
        INSERT INTO tidemill.accounts (
            pool, key, last_seen, account
        )
        SELECT
            pool, key, last_seen, account
        FROM json_populate_recordset(NULL::tidemill.accounts, new_accounts)
        ON CONFLICT (pool, key) DO UPDATE SET
            last_seen = EXCLUDED.last_seen, account = EXCLUDED.account;
    END IF;
    IF ended_claims IS NOT NULL THEN
        DELETE FROM tidemill.reservations AS t
        USING json_to_recordset(ended_claims) AS w (job text, fence bigint, claim bigint)
        WHERE t.job = w.job AND t.fence = w.fence AND t.claim = w.claim;
    END IF;
    IF new_reservations IS NOT NULL THEN
        INSERT INTO tidemill.reservations (
            job, fence, claim, number, pool, key, reserved
        )
        SELECT
            job, fence, claim, number, pool, key, reserved
        FROM json_populate_recordset(NULL::tidemill.reservations, new_reservations);
    END IF;
    IF abandoned IS NOT NULL THEN
        INSERT INTO tidemill.abandoned_units (
            job, fence, claim, worker, lease
        )
        SELECT
            job, fence, claim, worker, lease
        FROM json_populate_recordset(NULL::tidemill.abandoned_units, abandoned)
        ON CONFLICT (job, fence, claim) DO UPDATE SET
            worker = EXCLUDED.worker, lease = EXCLUDED.lease;
    END IF;
    IF settled_abandoned IS NOT NULL THEN
        DELETE FROM tidemill.abandoned_units AS t
        USING json_to_recordset(settled_abandoned) AS w (job text, fence bigint, claim bigint)
        WHERE t.job = w.job AND t.fence = w.fence AND t.claim = w.claim;
    END IF;
    IF unconfirmed IS NOT NULL THEN
        INSERT INTO tidemill.unconfirmed_units (
            job, fence, claim, since
        )
        SELECT
            job, fence, claim, since
        FROM json_populate_recordset(NULL::tidemill.unconfirmed_units, unconfirmed)
        ON CONFLICT (job, fence, claim) DO UPDATE SET
            since = EXCLUDED.since;
    END IF;
    IF confirmed IS NOT NULL THEN
        DELETE FROM tidemill.unconfirmed_units AS t
        USING json_to_recordset(confirmed) AS w (job text, fence bigint, claim bigint)
        WHERE t.job = w.job AND t.fence = w.fence AND t.claim = w.claim;
    END IF;
    IF pool_minutes IS NOT NULL THEN
        INSERT INTO tidemill.pool_history (
            pool, minute, calls, units, refusals
        )
        SELECT
            pool, minute, calls, units, refusals
        FROM json_populate_recordset(NULL::tidemill.pool_history, pool_minutes)
        ON CONFLICT (pool, minute) DO UPDATE SET
            calls = EXCLUDED.calls, units = EXCLUDED.units, refusals = EXCLUDED.refusals;
    END IF;
    IF COALESCE(new_documents, deleted_documents, new_work) IS NOT NULL OR done_work IS NOT NULL THEN
        PERFORM tidemill.write_documents(new_documents, deleted_documents, new_work, done_work);
    END IF;
END
$$;
