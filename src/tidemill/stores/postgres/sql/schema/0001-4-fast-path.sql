-- The fast path: plain jobs, a whole batch per call. A job is plain if it has no key, no pools, no unique key
-- and no batch: it is in the lane ''. Anything else is left unchanged, and the caller sees that.
--
-- Plans are made once, for indexes: a table that was empty when it was analysed would always be scanned. For
-- the same reason a job found by id is not filtered by `state =`: the planner would scan the index of that
-- state as long as it believes it to be short. `state || '' =` means the same and matches no index. Jobs
-- changed by a list are found by `id = ANY(ARRAY[…])`: with an equality of two columns the planner may search
-- either side by the other, and scan a table that was small when it was planned. EXISTS for several rows has
-- an OFFSET 0: otherwise all matches may be collected first. Locked ready jobs are skipped.

-- Has no rows. A transaction that relies on a queue's settings takes a shared lock on it, which costs
-- nothing. A transaction that pauses or limits a queue waits until all of those have ended. Otherwise a pause
-- would be reported while jobs still start, and a limit while uncounted jobs come in.
CREATE TABLE tidemill.queue_settings_lock ();

-- Marks the empty lane '' of a queue as occupied: it counts as served now.
CREATE FUNCTION tidemill.occupy_lane(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM tidemill.lanes AS l
    WHERE l.queue = name AND l.lane = '' AND l.vacant FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE tidemill.lanes AS l
        SET vacant = false, served = (SELECT last_value FROM tidemill.picks)
        WHERE l.queue = name AND l.lane = '';
    END IF;
END
$$;

-- The claim cursor. Rows deleted from `ready` stay in the index until a vacuum removes them, which an open
-- old snapshot can delay for long. A claim would read past all of them to the first ready job. So it begins
-- where the last claim ended: at the cursor of the queue. More urgent jobs come first, since they may arrive
-- at any time; jobs before the cursor come last, if the others were not enough. A transaction that puts a job
-- before a cursor increases `cursor_resets`, which invalidates all cursors and waits for no lock. A job put
-- there concurrently and unseen is found within a second: a cursor is valid that long, and then the queue is
-- scanned from the beginning. New jobs are due now and so behind the cursor, unless the wall clock was set
-- back: an older cursor is then not used.

-- Returns the position from which a queue is scanned.
CREATE FUNCTION tidemill.usable_cursor(
    known tidemill.claim_cursor, wall double precision, boot double precision, cursor_resets bigint
) RETURNS tidemill.claim_cursor LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF known.cursor_resets = cursor_resets AND boot - known.since BETWEEN 0 AND 1
        AND abs(wall - boot - known.shift) < 0.001
    THEN
        RETURN known;
    END IF;
    RETURN ROW(-32769, '-Infinity', 0, boot, wall - boot, cursor_resets)::tidemill.claim_cursor;
END
$$;

-- Invalidates claim cursors if a job was added before one.
CREATE FUNCTION tidemill.reset_claim_cursors(added tidemill.ready[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM (SELECT DISTINCT c.queue FROM unnest(added) AS c) AS q
        CROSS JOIN LATERAL (
            SELECT (l.claim_cursor).* FROM tidemill.lanes AS l WHERE l.queue = q.queue AND l.lane = '' OFFSET 0
        ) AS stored
        JOIN LATERAL unnest(added) AS c ON c.queue = q.queue AND c.lane = ''
        WHERE c.priority = stored.priority AND (c.due, c.seq) <= (stored.due, stored.seq)
    ) THEN
        PERFORM nextval('tidemill.cursor_resets');
    END IF;
END
$$;

-- Returns the ranges of a queue in the order in which they are scanned, each from after one position to
-- another. The first ends with a priority: an index scan does not stop at a row that only a later column
-- excludes.
CREATE FUNCTION tidemill.scan_ranges(at tidemill.claim_cursor) RETURNS TABLE (
    priority integer, due double precision, seq bigint,
    last_priority integer, last_due double precision, last_seq bigint
) LANGUAGE sql IMMUTABLE AS $$
    VALUES
        (-32769, '-Infinity'::double precision, 0::bigint, at.priority - 1, 'Infinity'::double precision, 0::bigint),
        (at.priority, at.due, at.seq, 32767, 'Infinity', 0),
        (at.priority, '-Infinity', 0, at.priority, at.due, at.seq)
$$;

-- Deletes up to `wanted` jobs from `ready`, with lower fences than `below` if that is given. Returns their
-- ids and the next claim cursor: null if there were not enough jobs, or some were before the old cursor. This
-- function and the next are called by claim_plain, which sets the planner's options.
CREATE FUNCTION tidemill.take_ready_jobs(
    name text, wanted integer, wall double precision, below bigint, at tidemill.claim_cursor,
    OUT ids text[], OUT next tidemill.claim_cursor
) LANGUAGE plpgsql AS $$
DECLARE
    final record;
BEGIN
    WITH picked AS MATERIALIZED (
        SELECT entry.* FROM tidemill.scan_ranges(at) AS scan
        CROSS JOIN LATERAL (
            SELECT o.ctid AS row_id, o.priority, o.due, o.seq FROM tidemill.ready AS o
            WHERE o.queue = name AND o.lane = ''
            AND (o.priority, o.due, o.seq) > (scan.priority, scan.due, scan.seq)
            AND (o.priority, o.due, o.seq) <= (scan.last_priority, scan.last_due, scan.last_seq)
            AND (o.expires IS NULL OR o.expires > wall) AND (below IS NULL OR o.fence < below)
            ORDER BY o.priority, o.due, o.seq LIMIT wanted FOR UPDATE SKIP LOCKED
        ) AS entry LIMIT wanted
    ), deleted AS (
        DELETE FROM tidemill.ready AS r WHERE r.ctid = ANY(ARRAY(SELECT p.row_id FROM picked AS p))
        RETURNING r.id
    )
    SELECT taken.ids, p.priority, p.due, p.seq INTO final
    FROM (SELECT array_agg(g.id) AS ids FROM deleted AS g) AS taken
    LEFT JOIN (SELECT p.priority, p.due, p.seq FROM picked AS p OFFSET wanted - 1) AS p ON true;
    ids := final.ids;
    IF (final.priority, final.due, final.seq) > (at.priority, at.due, at.seq) THEN
        next := ROW(final.priority, final.due, final.seq, at.since, at.shift, at.cursor_resets)::tidemill.claim_cursor;
    ELSIF final.priority < at.priority THEN
        next := at;
    END IF;
END
$$;

-- True if a queue has a ready plain job.
CREATE FUNCTION tidemill.has_ready_jobs(name text, at tidemill.claim_cursor) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM tidemill.scan_ranges(at) AS scan
        CROSS JOIN LATERAL (
            SELECT FROM tidemill.ready AS o
            WHERE o.queue = name AND o.lane = ''
            AND (o.priority, o.due, o.seq) > (scan.priority, scan.due, scan.seq)
            AND (o.priority, o.due, o.seq) <= (scan.last_priority, scan.last_due, scan.last_seq)
            ORDER BY o.priority, o.due, o.seq LIMIT 1
        ) AS entry
    );
END
$$;

-- Inserts plain jobs, all or none. Returns the number of new jobs: 0, with nothing changed, if one may be
-- known or a queue has a limit. An unknown queue gets the given settings. A list of queues, tasks or
-- priorities may end early: its first value then holds for the rest. Any other list may be empty.
CREATE FUNCTION tidemill.insert_plain(
    injected_wall double precision, expected_boot double precision, known_epoch bigint, names text[], settings text,
    ids text[], queues text[], tasks text[], payloads text[], priorities integer[],
    delays double precision[], ats double precision[], expiries double precision[],
    timeouts double precision[], traces text[], tag_lists text[]
) RETURNS integer LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    now double precision;
    name text;
    known integer;
    limited boolean;
    inserted integer;
BEGIN
    SELECT count(*), bool_or(NOT q.fast_insert) INTO known, limited
    FROM tidemill.queues AS q
    WHERE q.name = ANY(names) AND NOT EXISTS (SELECT FROM tidemill.queue_settings_lock FOR SHARE);
    IF limited
        OR EXISTS (SELECT FROM tidemill.jobs AS j WHERE j.id = ANY(ids))
        OR EXISTS (SELECT FROM tidemill.known_ids AS r WHERE r.id = ANY(ids))
    THEN
        RETURN 0;
    END IF;
    IF known < cardinality(names) THEN
        INSERT INTO tidemill.queues (name, declared, fast_insert, fast_claim, wakes_on_end)
        SELECT n.name, settings, true, true, false FROM unnest(names) AS n (name)
        ON CONFLICT DO NOTHING;
        INSERT INTO tidemill.lanes (queue, lane, pool_set, served, vacant)
        SELECT n.name, '', '', 0, true FROM unnest(names) AS n (name)
        ON CONFLICT DO NOTHING;
    END IF;
    SELECT c.wall INTO now FROM tidemill.read_clock(injected_wall, expected_boot, known_epoch) AS c;
    FOREACH name IN ARRAY names LOOP
        IF EXISTS (SELECT FROM tidemill.lanes AS l WHERE l.queue = name AND l.lane = '' AND l.vacant)
            AND EXISTS (
                SELECT FROM unnest(ids, queues, delays, ats) AS new (id, queue, delay, at)
                WHERE COALESCE(new.queue, queues[1]) = name
                AND COALESCE(new.at, now + COALESCE(new.delay, 0)) <= now
            )
        THEN
            PERFORM tidemill.occupy_lane(name);
        END IF;
    END LOOP;
    WITH written_jobs AS (
        INSERT INTO tidemill.jobs (
            seq, id, queue, task, payload, state, priority, created, due, expires, timeout, trace, tags
        )
        SELECT nextval('tidemill.job_seqs'), new.id, COALESCE(new.queue, queues[1]),
            COALESCE(new.task, tasks[1]), new.payload,
            CASE WHEN COALESCE(new.at, now + COALESCE(new.delay, 0)) > now THEN 'scheduled' ELSE 'ready' END,
            COALESCE(new.priority, priorities[1]), now,
            GREATEST(COALESCE(new.at, now + COALESCE(new.delay, 0)), now), now + new.expires, new.timeout,
            new.trace, new.tags
        FROM unnest(ids, queues, tasks, payloads, priorities, delays, ats, expiries, timeouts, traces, tag_lists)
            AS new (id, queue, task, payload, priority, delay, at, expires, timeout, trace, tags)
        ON CONFLICT (id) DO NOTHING
        RETURNING queue, lane, priority, due, seq, id, fence, expires, state
    ), written_ready AS (
        INSERT INTO tidemill.ready (queue, lane, priority, due, seq, id, fence, expires)
        SELECT m.queue, m.lane, m.priority, m.due, m.seq, m.id, m.fence, m.expires
        FROM written_jobs AS m WHERE m.state = 'ready'
    )
    SELECT count(*) INTO inserted FROM written_jobs;
    RETURN inserted;
END
$$;

-- Claims up to `most` jobs of the queues: of each as many as its share, then of each what is left. The last
-- row has no job and describes the result: `plain` is false if nothing was done because something is not
-- plain. `worker_id` may be null: then nothing is claimed.
CREATE FUNCTION tidemill.claim_plain(
    injected_wall double precision, expected_boot double precision, known_epoch bigint, worker_id text, claim_number bigint,
    queues text[], shares integer[], most integer, lease_seconds double precision, claim_id bigint
) RETURNS TABLE (
    id text, queue text, task text, payload text, attempts integer, priority integer, crashes integer,
    generation integer, timeout double precision, trace text, created double precision,
    due double precision, part text, in_flow text, fence bigint,
    plain boolean, wall double precision, boot double precision, epoch bigint, more boolean, next_due double precision,
    promoted text[]
) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET enable_sort = off  -- or all ready jobs are sorted for the few that are wanted
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    clock record;
    last_number bigint;
    promoted_queues text[] := '{}';
    name text;
    remaining integer := most;
    wanted integer;
    taken integer;
    at integer := 0;
    added tidemill.ready[];
    beginning tidemill.claim_cursor;
    known record;
    picked record;
    is_left boolean[] := '{}'; -- for each queue that jobs were taken from: whether it has more
    new_fence bigint;
    claimed_ids text[] := '{}';
    pick_count bigint;
    total integer;
BEGIN
    SELECT c.wall, c.boot, c.epoch INTO clock
    FROM tidemill.read_clock(injected_wall, expected_boot, known_epoch) AS c;
    plain := worker_id IS NOT NULL;
    wall := clock.wall;
    boot := clock.boot;
    epoch := clock.epoch;
    IF NOT plain THEN
        RETURN NEXT;
        RETURN;
    END IF;
    LOOP
        SELECT w.number INTO last_number FROM tidemill.workers AS w WHERE w.id = worker_id FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO tidemill.workers AS w (id, number, lease, seen)
        VALUES (worker_id, 0, clock.boot + lease_seconds, clock.wall)
        ON CONFLICT DO NOTHING;
    END LOOP;
    total := cardinality(queues);
    beginning := tidemill.usable_cursor(NULL, clock.wall, clock.boot, 0);
    IF last_number >= claim_number OR EXISTS (
        SELECT FROM tidemill.queues AS q
        WHERE q.name = ANY(queues) AND NOT EXISTS (SELECT FROM tidemill.queue_settings_lock FOR SHARE) AND (
            NOT q.fast_claim
            OR EXISTS (SELECT FROM tidemill.lanes AS l WHERE l.queue = q.name AND l.lane > '' OFFSET 0)
            OR EXISTS (
                SELECT FROM tidemill.jobs AS j
                WHERE j.queue = q.name AND j.state = 'scheduled' AND j.due <= clock.wall AND j.lane > '' OFFSET 0
            )
            OR EXISTS (
                SELECT FROM tidemill.jobs AS j
                WHERE j.queue = q.name AND j.expires IS NOT NULL
                AND j.state IN ('scheduled', 'ready', 'waiting') AND j.expires <= clock.wall
                AND (j.state <> 'ready' OR ( -- else it is in a bulk claim, and runs
                    SELECT r.seq FROM tidemill.ready AS r
                    WHERE r.queue = j.queue AND r.lane = j.lane AND r.priority = j.priority AND r.due = j.due
                    AND r.seq = j.seq
                ) IS NOT NULL) OFFSET 0
            )
        )
    ) THEN
        plain := false;
        RETURN NEXT;
        RETURN;
    END IF;
    UPDATE tidemill.workers AS w SET number = claim_number WHERE w.id = worker_id;
    -- Two rounds: the shares, then what is left. Jobs with keys and expired jobs that have come since the
    -- check above are left to the next claim.
    WHILE at < 2 * total LOOP
        name := queues[at % total + 1];
        IF at < total THEN
            IF EXISTS (
                SELECT FROM tidemill.jobs AS j
                WHERE j.queue = name AND j.lane = '' AND j.state = 'scheduled' AND j.due <= clock.wall
            ) THEN
                PERFORM tidemill.occupy_lane(name);
                WITH now_due AS MATERIALIZED (
                    SELECT o.ctid AS at FROM tidemill.jobs AS o
                    WHERE o.queue = name AND o.lane = '' AND o.state = 'scheduled' AND o.due <= clock.wall
                    ORDER BY o.due, o.seq LIMIT 250 FOR UPDATE SKIP LOCKED
                ), promoted_jobs AS (
                    UPDATE tidemill.jobs AS j SET state = 'ready'
                    WHERE j.ctid = ANY(ARRAY(SELECT d.at FROM now_due AS d))
                    RETURNING j.queue, j.lane, j.priority, j.due, j.seq, j.id, j.fence, j.expires
                ), written_ready AS (
                    INSERT INTO tidemill.ready AS r (queue, lane, priority, due, seq, id, fence, expires)
                    SELECT m.queue, m.lane, m.priority, m.due, m.seq, m.id, m.fence, m.expires FROM promoted_jobs AS m
                    RETURNING r AS row
                )
                SELECT array_agg(i.row) INTO added FROM written_ready AS i;
                PERFORM tidemill.reset_claim_cursors(added);
                promoted_queues := promoted_queues || name;
            END IF;
            wanted := LEAST(shares[at + 1], remaining);
        ELSE
            wanted := remaining;
        END IF;
        at := at + 1;
        CONTINUE WHEN wanted <= 0;
        SELECT l.claim_cursor, c.last_value INTO known
        FROM tidemill.lanes AS l, tidemill.cursor_resets AS c WHERE l.queue = name AND l.lane = '';
        SELECT t.ids, t.next INTO picked FROM tidemill.take_ready_jobs(
            name, wanted, clock.wall, new_fence,
            tidemill.usable_cursor(known.claim_cursor, clock.wall, clock.boot, known.last_value)
        ) AS t;
        CONTINUE WHEN picked.ids IS NULL;
        -- Only after all of them were deleted from `ready`: no other claim can have given one of them a later
        -- fence.
        new_fence := COALESCE(new_fence, nextval('tidemill.fences'));
        claimed_ids := claimed_ids || picked.ids;
        taken := cardinality(picked.ids);
        RETURN QUERY
        SELECT j.id, j.queue, j.task, j.payload, j.attempts, j.priority, j.crashes, j.generation, j.timeout,
            j.trace, j.created, j.due, j.part, j.in_flow, new_fence,
            true, clock.wall, clock.boot, clock.epoch, NULL::boolean, NULL::double precision, NULL::text[]
        FROM tidemill.jobs AS j WHERE j.id = ANY(picked.ids) ORDER BY j.priority, j.due, j.seq;
        remaining := remaining - taken;
        SELECT setval('tidemill.picks', p.last_value + taken) INTO pick_count FROM tidemill.picks AS p;
        is_left[(at - 1) % total + 1] := tidemill.has_ready_jobs(name, COALESCE(picked.next, beginning));
        PERFORM FROM tidemill.lanes AS l WHERE l.queue = name AND l.lane = '' FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE tidemill.lanes AS l
            SET served = pick_count, vacant = NOT is_left[(at - 1) % total + 1],
                claim_cursor = picked.next
            WHERE l.queue = name AND l.lane = '';
        END IF;
    END LOOP;
    IF new_fence IS NOT NULL THEN
        INSERT INTO tidemill.claims (fence, claim, worker, number, lease, started, open_jobs, jobs)
        VALUES (new_fence, claim_id, worker_id, claim_number, clock.boot + lease_seconds, clock.wall,
            cardinality(claimed_ids), claimed_ids);
    END IF;
    more := COALESCE(true = ANY(is_left), false);
    FOR at IN 1..total LOOP
        name := queues[at];
        more := more OR COALESCE(is_left[at], tidemill.has_ready_jobs(name, beginning));
        next_due := LEAST(next_due, (
            SELECT j.due FROM tidemill.jobs AS j WHERE j.queue = name AND j.state = 'scheduled'
            ORDER BY j.due LIMIT 1
        ));
    END LOOP;
    id := NULL;
    promoted := promoted_queues;
    fence := new_fence;
    RETURN NEXT;
END
$$;

-- The most common settlement: jobs of one claim, all done. `held`: there are reservations. Returns the same
-- as settle_mixed; settle_plain calls both and sets the planner's options.
CREATE FUNCTION tidemill.settle_done(
    wall double precision, held boolean, ids text[], claim_fence bigint, claim_id bigint, results text[],
    OUT done bigint[], OUT wakes text[], OUT flow_jobs text[]
) LANGUAGE plpgsql AS $$
DECLARE
    held_claim record;
    queues text[];
    bulk_settled integer;
BEGIN
    SELECT c.fence, c.worker, c.number, c.lease, c.started INTO held_claim
    FROM tidemill.claims AS c WHERE c.fence = claim_fence AND c.claim = claim_id;
    WITH settled AS (
        UPDATE tidemill.jobs AS j
        SET state = 'done', attempts = j.attempts + 1, finished = wall, reason = NULL, result = s.result,
            error = NULL, bulk_claimed = j.state = 'ready', fence = claim_fence, claim = claim_id,
            alone = CASE WHEN j.state = 'ready' THEN j.crashes > 0 ELSE j.alone END,
            worker = CASE WHEN j.state = 'ready' THEN held_claim.worker ELSE j.worker END,
            number = CASE WHEN j.state = 'ready' THEN held_claim.number ELSE j.number END,
            lease = CASE WHEN j.state = 'ready' THEN held_claim.lease ELSE j.lease END,
            started = CASE WHEN j.state = 'ready' THEN held_claim.started ELSE j.started END,
            progress = CASE WHEN j.state = 'running' THEN j.progress END,
            note = CASE WHEN j.state = 'running' THEN j.note END,
            call = CASE WHEN j.state = 'running' THEN j.call ELSE '' END
        FROM unnest(ids, results) WITH ORDINALITY AS s (id, result)
        WHERE j.id = ANY(ARRAY[s.id]) AND (
            j.state || '' = 'ready' AND j.fence < held_claim.fence
            OR j.state || '' = 'running' AND j.fence = claim_fence AND j.claim = claim_id
        )
        AND j.unique_key IS NULL AND j.needs IS NULL AND j.deferred_needs IS NULL
        AND NOT (held AND EXISTS (
            SELECT FROM tidemill.reservations AS r
            WHERE r.job = s.id AND r.fence = claim_fence AND r.claim = claim_id OFFSET 0
        ))
        RETURNING j.id, j.queue, s.ordinality AS number, j.bulk_claimed, j.flow
    ), counted AS (
        INSERT INTO tidemill.history AS h (queue, minute, done)
        SELECT s.queue, floor(wall / 60) * 60, count(*) FROM settled AS s GROUP BY s.queue
        RETURNING h.queue
    )
    SELECT array_agg(s.number), count(*) FILTER (WHERE s.bulk_claimed), ARRAY(SELECT c.queue FROM counted AS c),
        array_agg(s.id) FILTER (WHERE s.flow IS NOT NULL)
    INTO done, bulk_settled, queues, flow_jobs FROM settled AS s;
    IF bulk_settled > 0 THEN
        PERFORM tidemill.shrink_claim(claim_fence, bulk_settled);
    END IF;
    wakes := ARRAY(SELECT q.name FROM tidemill.queues AS q WHERE q.name = ANY(queues) AND q.wakes_on_end);
END
$$;

-- Settles any other mix of outcomes. Returns which settlements (from 1) are done, the queues to wake, and the
-- ended jobs of flows.
CREATE FUNCTION tidemill.settle_mixed(
    wall double precision, held boolean, ids text[], fences bigint[], claims bigint[], kinds text[],
    results text[], errors text[], reasons text[], delays double precision[], priorities integer[],
    OUT done bigint[], OUT wakes text[], OUT flow_jobs text[]
) LANGUAGE plpgsql AS $$
DECLARE
    left_claims bigint[];
    added tidemill.ready[];
BEGIN
    WITH open_claims AS MATERIALIZED (
        SELECT c.fence, c.claim, c.worker, c.number, c.lease, c.started
        FROM tidemill.claims AS c WHERE c.fence = ANY(fences)
    ), settled AS (
        UPDATE tidemill.jobs AS j
        SET state = CASE s.kind WHEN 'done' THEN 'done' WHEN 'fail' THEN 'failed'
                WHEN 'cancelled' THEN 'cancelled' WHEN 'release' THEN 'ready'
                ELSE CASE WHEN s.delay > 0 THEN 'scheduled' ELSE 'ready' END END,
            attempts = j.attempts + CASE WHEN s.kind IN ('done', 'fail', 'retry') THEN 1 ELSE 0 END,
            finished = CASE WHEN s.kind IN ('done', 'fail', 'cancelled') THEN wall ELSE j.finished END,
            reason = CASE WHEN s.kind IN ('done', 'fail', 'cancelled') THEN s.reason ELSE j.reason END,
            result = CASE WHEN s.kind = 'done' THEN s.result ELSE j.result END,
            error = CASE WHEN s.kind IN ('done', 'fail', 'retry') THEN s.error ELSE j.error END,
            priority = CASE WHEN s.kind = 'retry' THEN COALESCE(s.priority, j.priority) ELSE j.priority END,
            due = CASE WHEN s.kind IN ('retry', 'snooze') THEN wall + s.delay ELSE j.due END,
            unknown_for = CASE WHEN s.kind IN ('retry', 'snooze') THEN 0 ELSE j.unknown_for END,
            note = COALESCE(
                CASE WHEN s.kind = 'snooze' THEN s.reason END, CASE WHEN j.state = 'running' THEN j.note END
            ),
            -- For jobs in a bulk claim: what the claim would have written.
            bulk_claimed = j.state = 'ready', fence = s.fence, claim = s.claim,
            alone = CASE WHEN j.state = 'ready' THEN j.crashes > 0 ELSE j.alone END,
            worker = CASE WHEN j.state = 'ready' THEN s.worker ELSE j.worker END,
            number = CASE WHEN j.state = 'ready' THEN s.number ELSE j.number END,
            lease = CASE WHEN j.state = 'ready' THEN s.lease ELSE j.lease END,
            started = CASE WHEN j.state = 'ready' THEN s.started ELSE j.started END,
            progress = CASE WHEN j.state = 'running' THEN j.progress END,
            call = CASE WHEN j.state = 'running' THEN j.call ELSE '' END
        FROM (
            SELECT u.id, COALESCE(u.fence, fences[1]) AS fence, COALESCE(u.claim, claims[1]) AS claim,
                COALESCE(u.kind, kinds[1]) AS kind, u.result, u.error, u.reason, u.delay, u.priority,
                u.ordinality, o.fence AS bulk_claimed, o.worker, o.number, o.lease, o.started
            FROM unnest(ids, fences, claims, kinds, results, errors, reasons, delays, priorities)
                WITH ORDINALITY AS u (id, fence, claim, kind, result, error, reason, delay, priority)
            LEFT JOIN open_claims AS o
                ON o.fence = COALESCE(u.fence, fences[1]) AND o.claim = COALESCE(u.claim, claims[1])
        ) AS s
        WHERE j.id = ANY(ARRAY[s.id]) AND (
            j.state || '' = 'running' AND j.fence = s.fence AND j.claim = s.claim
            OR j.state || '' = 'ready' AND j.fence < s.bulk_claimed
        )
        AND j.unique_key IS NULL AND j.needs IS NULL AND j.deferred_needs IS NULL
        AND (j.lane = '' OR s.kind IN ('done', 'fail', 'cancelled') OR s.delay > 0)
        AND NOT (held AND EXISTS (
            SELECT FROM tidemill.reservations AS r
            WHERE r.job = s.id AND r.fence = s.fence AND r.claim = s.claim OFFSET 0
        ))
        RETURNING j.id, j.queue, j.state, s.ordinality AS number, s.kind, s.error, j.generation, j.attempts,
            j.started, j.worker, CASE WHEN j.bulk_claimed THEN j.fence END AS left_claim, j.lane, j.priority, j.due,
            j.seq, j.fence, j.expires, j.flow
    ), written_ready AS (
        INSERT INTO tidemill.ready AS r (queue, lane, priority, due, seq, id, fence, expires)
        SELECT s.queue, s.lane, s.priority, s.due, s.seq, s.id, s.fence, s.expires
        FROM settled AS s WHERE s.state = 'ready'
        RETURNING r AS row
    ), counted AS (
        INSERT INTO tidemill.history (queue, minute, done, failed, cancelled, retried)
        SELECT s.queue, floor(wall / 60) * 60, count(*) FILTER (WHERE s.kind = 'done'),
            count(*) FILTER (WHERE s.kind = 'fail'), count(*) FILTER (WHERE s.kind = 'cancelled'),
            count(*) FILTER (WHERE s.kind = 'retry')
        FROM settled AS s WHERE s.kind IN ('done', 'fail', 'cancelled', 'retry') GROUP BY s.queue
    ), noted AS (
        INSERT INTO tidemill.attempts (job, generation, attempt, started, ended, worker, outcome, error)
        SELECT s.id, s.generation, s.attempts, s.started, wall, s.worker, s.kind, s.error
        FROM settled AS s WHERE s.kind IN ('retry', 'fail')
    )
    SELECT array_agg(s.number), array_agg(s.left_claim) FILTER (WHERE s.left_claim IS NOT NULL),
        array_agg(DISTINCT s.queue) FILTER (WHERE s.state IN ('ready', 'scheduled') OR EXISTS (
            SELECT FROM tidemill.queues AS q WHERE q.name = s.queue AND q.wakes_on_end
        )),
        array_agg(s.id) FILTER (WHERE s.flow IS NOT NULL AND s.state NOT IN ('ready', 'scheduled')),
        ARRAY(SELECT i.row FROM written_ready AS i)
    INTO done, left_claims, wakes, flow_jobs, added FROM settled AS s;
    PERFORM tidemill.reset_claim_cursors(added);
    PERFORM tidemill.shrink_claim(l.fence, count(*)::integer)
    FROM unnest(left_claims) AS l (fence) GROUP BY l.fence ORDER BY l.fence;
END
$$;

-- Settles plain jobs. `kinds` are the tags of core.outcomes. A list of fences, claims or kinds may end early,
-- as above; any other except the ids may be empty. Returns which settlements (from 1) are left to the engine,
-- the queues to wake, whether jobs of flows have ended, and the clocks.
CREATE FUNCTION tidemill.settle_plain(
    injected_wall double precision, expected_boot double precision, known_epoch bigint, ids text[], fences bigint[],
    claims bigint[], kinds text[], results text[], errors text[], reasons text[],
    delays double precision[], priorities integer[], OUT unsettled integer[], OUT wakes text[],
    OUT marked boolean, OUT wall double precision, OUT boot double precision, OUT epoch bigint
) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    name text;
    done bigint[];
    flow_jobs text[];
    held boolean;
BEGIN
    -- First, because a claim in the same transaction takes this lock while jobs are locked, and a transaction
    -- that pauses a queue may wait for those jobs.
    PERFORM FROM tidemill.queue_settings_lock FOR SHARE;
    SELECT c.wall, c.boot, c.epoch INTO wall, boot, epoch
    FROM tidemill.read_clock(injected_wall, expected_boot, known_epoch) AS c;
    held := EXISTS (SELECT FROM tidemill.reservations);
    IF kinds = '{done}' AND cardinality(fences) = 1 AND cardinality(claims) = 1 THEN
        SELECT s.done, s.wakes, s.flow_jobs INTO done, wakes, flow_jobs
        FROM tidemill.settle_done(wall, held, ids, fences[1], claims[1], results) AS s;
    ELSE
        SELECT s.done, s.wakes, s.flow_jobs INTO done, wakes, flow_jobs
        FROM tidemill.settle_mixed(
            wall, held, ids, fences, claims, kinds, results, errors, reasons, delays, priorities
        ) AS s;
    END IF;
    marked := flow_jobs IS NOT NULL;
    IF marked THEN
        PERFORM tidemill.mark_flows(flow_jobs);
    END IF;
    unsettled := '{}';
    IF COALESCE(cardinality(done), 0) < cardinality(ids) THEN
        unsettled := ARRAY(
            SELECT o.number FROM generate_series(1, cardinality(ids)) AS o (number)
            WHERE o.number <> ALL(COALESCE(done, '{}'))
        );
    END IF;
    FOREACH name IN ARRAY COALESCE(wakes, '{}') LOOP
        IF EXISTS (SELECT FROM tidemill.lanes AS l WHERE l.queue = name AND l.lane = '' AND l.vacant)
            AND EXISTS (SELECT FROM tidemill.ready AS r WHERE r.queue = name AND r.lane = '')
        THEN
            PERFORM tidemill.occupy_lane(name);
        END IF;
    END LOOP;
END
$$;

-- Handles a heartbeat. Jobs that outlive a heartbeat are expanded: leases, progress and notes are per job.
-- `plain` is false, and nothing more was changed, if a job runs for this worker that it does not list.
-- `current` says for each listed claim whether it is current. A locked job (its handler's transaction, or an
-- operator who cancels it) is renewed the next time.
CREATE FUNCTION tidemill.extend_plain(
    injected_wall double precision, expected_boot double precision, known_epoch bigint, worker_id text, received bigint,
    lease_seconds double precision, worker_host text, worker_pid bigint, worker_queues text, worker_concurrency integer,
    ids text[], fences bigint[], claims bigint[], renewed boolean[], progresses double precision[],
    notes text[], log_jobs text[], log_ages double precision[], log_lines text[],
    OUT plain boolean, OUT current boolean[],
    OUT wall double precision, OUT boot double precision, OUT epoch bigint
) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    known bigint[];
    listed bigint;
BEGIN
    SELECT c.wall, c.boot, c.epoch INTO wall, boot, epoch
    FROM tidemill.read_clock(injected_wall, expected_boot, known_epoch) AS c;
    -- Locked before any job leaves them: a settlement of several claims also takes them in this order.
    known := ARRAY(
        SELECT c.fence FROM tidemill.claims AS c
        WHERE c.worker = worker_id AND c.number <= received ORDER BY c.fence FOR UPDATE
    );
    IF known <> '{}' THEN
        PERFORM tidemill.expand_claims(known, wait_for_locks => false);
        UPDATE tidemill.claims AS c SET lease = boot + lease_seconds
        FROM unnest(known) AS k (fence) WHERE c.fence = k.fence;
    END IF;
    SELECT array_agg(j.id IS NOT NULL ORDER BY h.ordinality),
        count(*) FILTER (WHERE j.state = 'running' AND j.number <= received AND j.worker = worker_id)
    INTO current, listed
    FROM unnest(ids, fences, claims) WITH ORDINALITY AS h (id, fence, claim)
    LEFT JOIN LATERAL (
        SELECT o.id, o.state, o.number, o.worker FROM tidemill.jobs AS o
        WHERE o.id = h.id AND (
            o.state || '' = 'running' AND o.fence = h.fence AND o.claim = h.claim
            OR o.state || '' = 'ready' AND o.fence < h.fence AND (
                SELECT c.claim FROM tidemill.claims AS c WHERE c.fence = h.fence
            ) = h.claim
        ) OFFSET 0
    ) AS j ON true;
    current := COALESCE(current, '{}');
    plain := listed >= (
        SELECT count(*) FROM tidemill.jobs AS j
        WHERE j.state = 'running' AND j.worker = worker_id AND j.number <= received
    );
    IF NOT plain THEN
        RETURN;
    END IF;
    WITH held AS MATERIALIZED (
        SELECT j.id, h.renewed, h.progress, h.note
        FROM unnest(ids, fences, claims, renewed, progresses, notes)
            AS h (id, fence, claim, renewed, progress, note)
        CROSS JOIN LATERAL (
            SELECT o.id FROM tidemill.jobs AS o
            WHERE o.id = h.id AND o.fence = h.fence AND o.claim = h.claim AND o.state || '' = 'running'
            FOR UPDATE SKIP LOCKED
        ) AS j
        WHERE h.renewed OR h.progress IS NOT NULL OR h.note IS NOT NULL
    )
    UPDATE tidemill.jobs AS j
    SET lease = CASE WHEN h.renewed THEN boot + lease_seconds ELSE j.lease END,
        progress = COALESCE(h.progress, j.progress), note = COALESCE(h.note, j.note)
    FROM held AS h
    WHERE j.id = ANY(ARRAY[h.id]);
    IF cardinality(log_jobs) > 0 THEN
        INSERT INTO tidemill.logs (job, generation, attempt, at, line)
        SELECT j.id, j.generation, j.attempts + 1, wall - l.age, l.line
        FROM unnest(log_jobs, log_ages, log_lines) WITH ORDINALITY AS l (job, age, line)
        JOIN tidemill.jobs AS j ON j.id = ANY(ARRAY[l.job])
        WHERE j.id = ANY(SELECT h.id FROM unnest(ids, current) AS h (id, current) WHERE h.current)
        ORDER BY l.ordinality;
        DELETE FROM tidemill.logs AS l
        USING (
            SELECT DISTINCT j.id, j.generation, j.attempts + 1 AS attempt
            FROM unnest(log_jobs) AS w (job) JOIN tidemill.jobs AS j ON j.id = ANY(ARRAY[w.job])
        ) AS of_job
        WHERE l.job = of_job.id AND l.generation = of_job.generation AND l.attempt = of_job.attempt
        AND l.number <= (
            SELECT k.number FROM tidemill.logs AS k
            WHERE k.job = of_job.id AND k.generation = of_job.generation AND k.attempt = of_job.attempt
            ORDER BY k.number DESC OFFSET 200 LIMIT 1
        );
    END IF;
    INSERT INTO tidemill.workers AS w (id, number, lease, seen, clock_epoch, host, pid, queues, concurrency)
    VALUES (worker_id, 0, boot + lease_seconds, wall, CASE WHEN known_epoch = epoch THEN known_epoch END,
        worker_host, worker_pid, worker_queues, worker_concurrency)
    ON CONFLICT (id) DO UPDATE SET lease = EXCLUDED.lease, seen = EXCLUDED.seen, clock_epoch = EXCLUDED.clock_epoch,
        host = EXCLUDED.host, pid = EXCLUDED.pid, queues = EXCLUDED.queues, concurrency = EXCLUDED.concurrency;
END
$$;
