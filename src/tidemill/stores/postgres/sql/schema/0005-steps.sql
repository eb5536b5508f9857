-- What slow steps lock, and what they write. Why some rows are put in an order that no index has: see look.sql.

-- Jobs with these ids, locked: those in line with their places there, which waits for a claim that is at it; those
-- in folded claims unfolded.
CREATE FUNCTION tidemill.lock_jobs(ids text[]) RETURNS SETOF tidemill.jobs LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    is_ready boolean;
    its_ids text[];
    its_fences bigint[];
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
        ) AS place;
        its_ids := ARRAY(
            SELECT j.id FROM tidemill.jobs AS j
            WHERE j.id = ANY(ids) AND j.state || '' = 'ready' AND (
                SELECT r.seq FROM tidemill.ready AS r
                WHERE r.queue = j.queue AND r.lane = j.lane AND r.priority = j.priority AND r.due = j.due
                AND r.seq = j.seq
            ) IS NULL
        );
        IF its_ids <> '{}' THEN
            SELECT array_agg(f.id), array_agg(f.fence) INTO STRICT its_ids, its_fences
            FROM tidemill.folded AS f WHERE f.id = ANY(its_ids);
            PERFORM tidemill.unfold_jobs(its_ids, its_fences);
        END IF;
    END IF;
    RETURN QUERY SELECT j.* FROM tidemill.jobs AS j WHERE j.id = ANY(ids);
END
$$;

-- All that these workers hold, locked.
CREATE FUNCTION tidemill.lock_running_of(workers text[]) RETURNS SETOF tidemill.jobs LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidemill.unfold(
        ARRAY(SELECT c.fence FROM tidemill.claims AS c WHERE c.worker = ANY(workers)), waits => true
    );
    RETURN QUERY SELECT j.* FROM tidemill.jobs AS j
    WHERE j.state = 'running' AND j.worker = ANY(workers) ORDER BY j.id || '' FOR UPDATE;
END
$$;

-- The first jobs whose lease is over, or whose worker is dead, locked: but whoever is being settled, or is in its
-- holder's transaction, is alive.
CREATE FUNCTION tidemill.lock_overdue(boot double precision, dead text[], most integer)
RETURNS SETOF tidemill.jobs LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidemill.unfold(ARRAY(
        SELECT c.fence FROM tidemill.claims AS c WHERE c.lease <= boot OR c.worker = ANY(dead)
    ), waits => false);
    RETURN QUERY SELECT j.* FROM tidemill.jobs AS j
    WHERE j.state = 'running' AND (j.lease <= boot OR j.worker = ANY(dead))
    ORDER BY j.seq + 0 LIMIT most FOR UPDATE SKIP LOCKED;
END
$$;

-- What a slow step made of its rows is written by one call. Every parameter is a list of rows, null for none.

--   plain_lanes: when the lanes '' were served last; null for one that has no job left
--   stirred: lanes that may have another head; grown: groups with how many lanes they have more
--   ended: claims whose reservations are replaced by `reserved`
--   left_by, heard: claims that nothing was left to any more, or that were heard
--   new_stirs, taken: what has stirred courses, and the numbers of those stirs that were taken
CREATE FUNCTION tidemill.commit_step(
    gone_jobs text[], new_jobs json, new_queues json, plain_lanes json, new_lanes json, gone_lanes json,
    stirred json, grown json, marks json, gone_groups json, picked bigint, ids json, admitted bigint[],
    new_workers json, new_checkpoints json, gone_checkpoints json,
    new_attempts json, attempts_kept integer, new_logs json, logs_kept integer, minutes json, new_pools json,
    new_accounts json, ended json, reserved json, left_to json, left_by json, silent json, heard json,
    pool_minutes json, new_courses json, gone_courses json, new_stirs json, taken bigint[]
) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    plain_lane record;
    came tidemill.ready[];
BEGIN
    IF new_queues IS NOT NULL THEN
        IF EXISTS (
            SELECT FROM json_populate_recordset(NULL::tidemill.queues, new_queues) AS n
            LEFT JOIN tidemill.queues AS q ON q.name = n.name
            WHERE NOT n.inserts AND q.inserts IS NOT FALSE OR NOT n.gives AND q.gives IS NOT FALSE
        ) THEN
            LOCK TABLE tidemill.passing IN EXCLUSIVE MODE;
        END IF;
        INSERT INTO tidemill.queues (name, declared, override, pause, inserts, gives, rings)
        SELECT name, declared, override, pause, inserts, gives, rings
        FROM json_populate_recordset(NULL::tidemill.queues, new_queues)
        ON CONFLICT (name) DO UPDATE SET declared = EXCLUDED.declared, override = EXCLUDED.override,
            pause = EXCLUDED.pause, inserts = EXCLUDED.inserts, gives = EXCLUDED.gives,
            rings = EXCLUDED.rings;
        INSERT INTO tidemill.lanes (queue, lane, grp, served, vacant)
        SELECT q.name, '', '', 0, true FROM json_to_recordset(new_queues) AS q (name text)
        ON CONFLICT DO NOTHING;
    END IF;
    -- All that were ready leave the line, from where they stood; those that are ready come into it below.
    IF gone_jobs IS NOT NULL OR new_jobs IS NOT NULL THEN
        DELETE FROM tidemill.ready AS t WHERE t.ctid = ANY(ARRAY(
            SELECT (
                SELECT r.ctid FROM tidemill.ready AS r
                WHERE r.queue = j.queue AND r.lane = j.lane AND r.priority = j.priority AND r.due = j.due
                AND r.seq = j.seq
            )
            FROM tidemill.jobs AS j
            WHERE j.id = ANY(gone_jobs || ARRAY(SELECT n.id FROM json_to_recordset(new_jobs) AS n (id text)))
            AND j.state || '' = 'ready'
        ));
    END IF;
    IF gone_jobs IS NOT NULL THEN
        DELETE FROM tidemill.logs WHERE job = ANY(gone_jobs);
        DELETE FROM tidemill.attempts WHERE job = ANY(gone_jobs);
        DELETE FROM tidemill.checkpoints WHERE job = ANY(gone_jobs);
        DELETE FROM tidemill.jobs WHERE id = ANY(gone_jobs);
    END IF;
    IF new_jobs IS NOT NULL THEN
        INSERT INTO tidemill.jobs (
            seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace,
            tags, attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence,
            claim, worker, number, lease, alone, started, finished, result, error, reason, progress,
            note, part, unknown_for, needs, batching, call, extra, flow, in_flow
        )
        SELECT
            seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace,
            tags, attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence,
            claim, worker, number, lease, alone, started, finished, result, error, reason, progress,
            note, part, unknown_for, needs, batching, call, extra, flow, in_flow
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
            batching = EXCLUDED.batching, call = EXCLUDED.call, extra = EXCLUDED.extra, flow = EXCLUDED.flow, in_flow = EXCLUDED.in_flow;
        WITH in_line AS (
            INSERT INTO tidemill.ready AS r (queue, lane, priority, due, seq, id, fence, expires)
            SELECT queue, lane, priority, due, seq, id, fence, expires
            FROM json_populate_recordset(NULL::tidemill.jobs, new_jobs) WHERE state = 'ready'
            RETURNING r AS row
        )
        SELECT array_agg(i.row) INTO came FROM in_line AS i;
        PERFORM tidemill.lower_floors(came);
    END IF;
    -- One by one: there are few, and a list of them might be looked up from the other side.
    FOR plain_lane IN SELECT w.queue, w.served FROM json_to_recordset(plain_lanes) AS w (queue text, served bigint) LOOP
        UPDATE tidemill.lanes AS l
        SET served = COALESCE(plain_lane.served, l.served), vacant = plain_lane.served IS NULL
        WHERE l.queue = plain_lane.queue AND l.lane = '';
    END LOOP;
    IF new_lanes IS NOT NULL THEN
        INSERT INTO tidemill.lanes (
            queue, lane, grp, served, pool, key, until, again, urgency, lacks, ripe
        )
        SELECT
            queue, lane, grp, served, pool, key, until, again, urgency, lacks, ripe
        FROM json_populate_recordset(NULL::tidemill.lanes, new_lanes)
        ON CONFLICT (queue, lane) DO UPDATE SET
            grp = EXCLUDED.grp, served = EXCLUDED.served, pool = EXCLUDED.pool, key = EXCLUDED.key,
            until = EXCLUDED.until, again = EXCLUDED.again, urgency = EXCLUDED.urgency,
            lacks = EXCLUDED.lacks, ripe = EXCLUDED.ripe;
    END IF;
    IF gone_lanes IS NOT NULL THEN
        DELETE FROM tidemill.lanes AS t
        USING json_to_recordset(gone_lanes) AS w (queue text, lane text)
        WHERE t.queue = w.queue AND t.lane = w.lane;
    END IF;
    IF stirred IS NOT NULL THEN
        UPDATE tidemill.lanes AS l SET priority = h.priority, seq = h.seq
        FROM json_to_recordset(stirred) AS w (queue text, lane text)
        CROSS JOIN LATERAL (
            SELECT r.priority, r.seq FROM tidemill.ready AS r
            WHERE r.queue = w.queue AND r.lane = w.lane ORDER BY r.priority, r.due, r.seq LIMIT 1
        ) AS h
        WHERE l.queue = w.queue AND l.lane = w.lane
        AND (l.priority, l.seq) IS DISTINCT FROM (h.priority, h.seq);
    END IF;
    IF grown IS NOT NULL THEN
        INSERT INTO tidemill.groups AS g (queue, grp, lanes)
        SELECT queue, grp, lanes FROM json_populate_recordset(NULL::tidemill.groups, grown)
        ON CONFLICT (queue, grp) DO UPDATE SET lanes = g.lanes + EXCLUDED.lanes;
    END IF;
    IF marks IS NOT NULL THEN
        INSERT INTO tidemill.groups (queue, grp, lanes, pool, key, until, again, urgency)
        SELECT queue, grp, 0, pool, key, until, again, urgency
        FROM json_populate_recordset(NULL::tidemill.groups, marks)
        ON CONFLICT (queue, grp) DO UPDATE SET pool = EXCLUDED.pool, key = EXCLUDED.key,
            until = EXCLUDED.until, again = EXCLUDED.again, urgency = EXCLUDED.urgency;
    END IF;
    IF gone_groups IS NOT NULL THEN
        DELETE FROM tidemill.groups AS g USING json_to_recordset(gone_groups) AS w (queue text, grp text)
        WHERE g.queue = w.queue AND g.grp = w.grp AND g.lanes <= 0 AND g.again IS NULL;
    END IF;
    IF picked > 0 THEN
        PERFORM setval('tidemill.picks', p.last_value + picked) FROM tidemill.picks AS p;
    END IF;
    IF ids IS NOT NULL THEN
        INSERT INTO tidemill.remembered (
            id, verdict, job, fence, claim, wall, boot, boot_id
        )
        SELECT
            id, verdict, job, fence, claim, wall, boot, boot_id
        FROM json_populate_recordset(NULL::tidemill.remembered, ids)
        ON CONFLICT (id) DO UPDATE SET
            verdict = EXCLUDED.verdict, job = EXCLUDED.job, fence = EXCLUDED.fence,
            claim = EXCLUDED.claim, wall = EXCLUDED.wall, boot = EXCLUDED.boot,
            boot_id = EXCLUDED.boot_id;
    END IF;
    IF admitted IS NOT NULL THEN
        DELETE FROM tidemill.arrivals WHERE seq = ANY(admitted);
    END IF;
    -- A claim of the hot path may have made the worker known, and counted, since it was looked for in vain.
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
    IF gone_checkpoints IS NOT NULL THEN
        DELETE FROM tidemill.checkpoints AS t
        USING json_to_recordset(gone_checkpoints) AS w (job text, name text, arguments text)
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
            pool, key, looked, account
        )
        SELECT
            pool, key, looked, account
        FROM json_populate_recordset(NULL::tidemill.accounts, new_accounts)
        ON CONFLICT (pool, key) DO UPDATE SET
            looked = EXCLUDED.looked, account = EXCLUDED.account;
    END IF;
    IF ended IS NOT NULL THEN
        DELETE FROM tidemill.reservations AS t
        USING json_to_recordset(ended) AS w (job text, fence bigint, claim bigint)
        WHERE t.job = w.job AND t.fence = w.fence AND t.claim = w.claim;
    END IF;
    IF reserved IS NOT NULL THEN
        INSERT INTO tidemill.reservations (
            job, fence, claim, number, pool, key, reserved
        )
        SELECT
            job, fence, claim, number, pool, key, reserved
        FROM json_populate_recordset(NULL::tidemill.reservations, reserved);
    END IF;
    IF left_to IS NOT NULL THEN
        INSERT INTO tidemill.left_units (
            job, fence, claim, worker, lease
        )
        SELECT
            job, fence, claim, worker, lease
        FROM json_populate_recordset(NULL::tidemill.left_units, left_to)
        ON CONFLICT (job, fence, claim) DO UPDATE SET
            worker = EXCLUDED.worker, lease = EXCLUDED.lease;
    END IF;
    IF left_by IS NOT NULL THEN
        DELETE FROM tidemill.left_units AS t
        USING json_to_recordset(left_by) AS w (job text, fence bigint, claim bigint)
        WHERE t.job = w.job AND t.fence = w.fence AND t.claim = w.claim;
    END IF;
    IF silent IS NOT NULL THEN
        INSERT INTO tidemill.unheard (
            job, fence, claim, since
        )
        SELECT
            job, fence, claim, since
        FROM json_populate_recordset(NULL::tidemill.unheard, silent)
        ON CONFLICT (job, fence, claim) DO UPDATE SET
            since = EXCLUDED.since;
    END IF;
    IF heard IS NOT NULL THEN
        DELETE FROM tidemill.unheard AS t
        USING json_to_recordset(heard) AS w (job text, fence bigint, claim bigint)
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
    IF COALESCE(new_courses, gone_courses, new_stirs) IS NOT NULL OR taken IS NOT NULL THEN
        PERFORM tidemill.write_courses(new_courses, gone_courses, new_stirs, taken);
    END IF;
END
$$;
