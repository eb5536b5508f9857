-- The hot path: plain jobs, whole batches of them in one call. A job is plain when it has no key, no pools, no
-- unique key and shares no calls: it stands in the lane '', and nobody has to be asked about it.
-- Whatever is not plain is left alone, and the caller is told.
--
-- Plans are made for indexes, once: a table that was empty when it was analysed would be read whole for ever.
-- For the same reason a job that is named is not asked for its state by `state =`: the index of that state would
-- be read whole, as long as it was thought to be short. `state || '' =` says the same and knows no index. And jobs
-- that are changed by a list are named by `id = ANY(ARRAY[…])`: of an equation of two columns either side may be
-- looked up by the other, and a table that was small when that was planned is read whole until it is analysed again.
-- EXISTS has an OFFSET 0 where it is asked for each row of several: else all there are may be gathered first.
-- Jobs in line that somebody else has locked are passed over.

-- Has no rows. Whoever goes by what a queue is set to shares a lock on it, which costs nothing; a step that
-- closes a queue, or limits it, waits until all who found it open are through. Else a pause would be told to
-- hold while jobs still start, and a limit while jobs come in that nobody has counted.
CREATE TABLE tidemill.passing ();

-- A plain job comes into a lane that was left without one: it counts as served now.
CREATE FUNCTION tidemill.open_lane(name text) RETURNS void LANGUAGE plpgsql AS $$
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

-- The floor. Rows that were taken from the line stay where they were until they are vacuumed, and while anybody has
-- an old snapshot open, that is never: a claim would walk over all of them to the first that is left. So it begins
-- where the last one ended: at the floor of the queue. First come more urgent jobs, since those may arrive at any
-- time; what stands before the floor comes last, if there were not enough.
-- Whoever puts a job before a floor counts a lowering, which ends all floors there are, and waits for nobody. What
-- is put there unseen, by two at the same time, is found within a second: so long a floor is good, and then the line
-- is looked through from its beginning. New jobs are due now, and so behind the floor, unless the wall clock was
-- put back: a floor from before that is not gone by.

-- From where a line is to be looked through.
CREATE FUNCTION tidemill.usable(
    known tidemill.floor, wall double precision, boot double precision, lowerings bigint
) RETURNS tidemill.floor LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF known.lowerings = lowerings AND boot - known.since BETWEEN 0 AND 1
        AND abs(wall - boot - known.shift) < 0.001
    THEN
        RETURN known;
    END IF;
    RETURN ROW(-32769, '-Infinity', 0, boot, wall - boot, lowerings)::tidemill.floor;
END
$$;

-- Jobs have come into the line, perhaps before a floor.
CREATE FUNCTION tidemill.lower_floors(came tidemill.ready[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM (SELECT DISTINCT c.queue FROM unnest(came) AS c) AS q
        CROSS JOIN LATERAL (
            SELECT (l.floor).* FROM tidemill.lanes AS l WHERE l.queue = q.queue AND l.lane = '' OFFSET 0
        ) AS its
        JOIN LATERAL unnest(came) AS c ON c.queue = q.queue AND c.lane = ''
        WHERE c.priority = its.priority AND (c.due, c.seq) <= (its.due, its.seq)
    ) THEN
        PERFORM nextval('tidemill.lowerings');
    END IF;
END
$$;

-- The reaches of a line, in the order they are looked through: each from behind one place to another. The first ends
-- with a priority: at a row that is too high by a later column only, an index is not left.
CREATE FUNCTION tidemill.reaches(at tidemill.floor) RETURNS TABLE (
    priority integer, due double precision, seq bigint,
    last_priority integer, last_due double precision, last_seq bigint
) LANGUAGE sql IMMUTABLE AS $$
    VALUES
        (-32769, '-Infinity'::double precision, 0::bigint, at.priority - 1, 'Infinity'::double precision, 0::bigint),
        (at.priority, at.due, at.seq, 32767, 'Infinity', 0),
        (at.priority, '-Infinity', 0, at.priority, at.due, at.seq)
$$;

-- Takes up to `wanted` jobs out of a line whose last claims, if `below` is given, had lower fences. Answers them and
-- the floor for the next claim: none when there were not enough, or when jobs were found before the one there was.
-- This and the next are called by claim_plain, which says how to plan.
CREATE FUNCTION tidemill.take_from_line(
    name text, wanted integer, wall double precision, below bigint, at tidemill.floor,
    OUT ids text[], OUT next tidemill.floor
) LANGUAGE plpgsql AS $$
DECLARE
    final record;
BEGIN
    WITH picked AS MATERIALIZED (
        SELECT place.* FROM tidemill.reaches(at) AS reach
        CROSS JOIN LATERAL (
            SELECT o.ctid AS spot, o.priority, o.due, o.seq FROM tidemill.ready AS o
            WHERE o.queue = name AND o.lane = ''
            AND (o.priority, o.due, o.seq) > (reach.priority, reach.due, reach.seq)
            AND (o.priority, o.due, o.seq) <= (reach.last_priority, reach.last_due, reach.last_seq)
            AND (o.expires IS NULL OR o.expires > wall) AND (below IS NULL OR o.fence < below)
            ORDER BY o.priority, o.due, o.seq LIMIT wanted FOR UPDATE SKIP LOCKED
        ) AS place LIMIT wanted
    ), gone AS (
        DELETE FROM tidemill.ready AS r WHERE r.ctid = ANY(ARRAY(SELECT p.spot FROM picked AS p))
        RETURNING r.id
    )
    SELECT taken.ids, p.priority, p.due, p.seq INTO final
    FROM (SELECT array_agg(g.id) AS ids FROM gone AS g) AS taken
    LEFT JOIN (SELECT p.priority, p.due, p.seq FROM picked AS p OFFSET wanted - 1) AS p ON true;
    ids := final.ids;
    IF (final.priority, final.due, final.seq) > (at.priority, at.due, at.seq) THEN
        next := ROW(final.priority, final.due, final.seq, at.since, at.shift, at.lowerings)::tidemill.floor;
    ELSIF final.priority < at.priority THEN
        next := at;
    END IF;
END
$$;

-- Whether there is a job in a line.
CREATE FUNCTION tidemill.is_in_line(name text, at tidemill.floor) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM tidemill.reaches(at) AS reach
        CROSS JOIN LATERAL (
            SELECT FROM tidemill.ready AS o
            WHERE o.queue = name AND o.lane = ''
            AND (o.priority, o.due, o.seq) > (reach.priority, reach.due, reach.seq)
            AND (o.priority, o.due, o.seq) <= (reach.last_priority, reach.last_due, reach.last_seq)
            ORDER BY o.priority, o.due, o.seq LIMIT 1
        ) AS place
    );
END
$$;

-- Groups of plain jobs, all or none. Answers how many are new: none when one of them may be known, or one of
-- the queues has a limit, and then nothing was changed. A queue that nobody knows has the settings given.
-- A list of queues, tasks or priorities may end early: whoever has none has the first. Any other list may be
-- empty.
CREATE FUNCTION tidemill.insert_plain(
    given_wall double precision, expected double precision, heard bigint, names text[], settings text,
    ids text[], queues text[], tasks text[], payloads text[], priorities integer[],
    delays double precision[], ats double precision[], expiries double precision[],
    timeouts double precision[], traces text[], tagged text[]
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
    SELECT count(*), bool_or(NOT q.inserts) INTO known, limited
    FROM tidemill.queues AS q
    WHERE q.name = ANY(names) AND NOT EXISTS (SELECT FROM tidemill.passing FOR SHARE);
    IF limited
        OR EXISTS (SELECT FROM tidemill.jobs AS j WHERE j.id = ANY(ids))
        OR EXISTS (SELECT FROM tidemill.remembered AS r WHERE r.id = ANY(ids))
    THEN
        RETURN 0;
    END IF;
    IF known < cardinality(names) THEN
        INSERT INTO tidemill.queues (name, declared, inserts, gives, rings)
        SELECT n.name, settings, true, true, false FROM unnest(names) AS n (name)
        ON CONFLICT DO NOTHING;
        INSERT INTO tidemill.lanes (queue, lane, grp, served, vacant)
        SELECT n.name, '', '', 0, true FROM unnest(names) AS n (name)
        ON CONFLICT DO NOTHING;
    END IF;
    SELECT c.wall INTO now FROM tidemill.read_clock(given_wall, expected, heard) AS c;
    FOREACH name IN ARRAY names LOOP
        IF EXISTS (SELECT FROM tidemill.lanes AS l WHERE l.queue = name AND l.lane = '' AND l.vacant)
            AND EXISTS (
                SELECT FROM unnest(ids, queues, delays, ats) AS new (id, queue, delay, at)
                WHERE COALESCE(new.queue, queues[1]) = name
                AND COALESCE(new.at, now + COALESCE(new.delay, 0)) <= now
            )
        THEN
            PERFORM tidemill.open_lane(name);
        END IF;
    END LOOP;
    WITH made AS (
        INSERT INTO tidemill.jobs (
            seq, id, queue, task, payload, state, priority, created, due, expires, timeout, trace, tags
        )
        SELECT nextval('tidemill.places'), new.id, COALESCE(new.queue, queues[1]),
            COALESCE(new.task, tasks[1]), new.payload,
            CASE WHEN COALESCE(new.at, now + COALESCE(new.delay, 0)) > now THEN 'scheduled' ELSE 'ready' END,
            COALESCE(new.priority, priorities[1]), now,
            GREATEST(COALESCE(new.at, now + COALESCE(new.delay, 0)), now), now + new.expires, new.timeout,
            new.trace, new.tags
        FROM unnest(ids, queues, tasks, payloads, priorities, delays, ats, expiries, timeouts, traces, tagged)
            AS new (id, queue, task, payload, priority, delay, at, expires, timeout, trace, tags)
        ON CONFLICT (id) DO NOTHING
        RETURNING queue, lane, priority, due, seq, id, fence, expires, state
    ), in_line AS (
        INSERT INTO tidemill.ready (queue, lane, priority, due, seq, id, fence, expires)
        SELECT m.queue, m.lane, m.priority, m.due, m.seq, m.id, m.fence, m.expires
        FROM made AS m WHERE m.state = 'ready'
    )
    SELECT count(*) INTO inserted FROM made;
    RETURN inserted;
END
$$;

-- Up to `most` jobs of the queues: of each as many as its share, then of each what is left. The last row has no
-- job and says how it went: `plain` is false when nothing was done because something is not plain.
-- `of_worker` may be null: nothing is asked for.
CREATE FUNCTION tidemill.claim_plain(
    given_wall double precision, expected double precision, heard bigint, of_worker text, its_number bigint,
    queues text[], shares integer[], most integer, for_seconds double precision, claim_id bigint
) RETURNS TABLE (
    id text, queue text, task text, payload text, attempts integer, priority integer, crashes integer,
    generation integer, timeout double precision, trace text, created double precision,
    due double precision, part text, in_flow text, fence bigint,
    plain boolean, wall double precision, boot double precision, epoch bigint, more boolean, next_due double precision,
    promoted text[]
) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET enable_sort = off -- or a long line is sorted for the few that are wanted
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    clock record;
    last_number bigint;
    rung text[] := '{}';
    name text;
    left_over integer := most;
    wanted integer;
    taken integer;
    at integer := 0;
    came tidemill.ready[];
    beginning tidemill.floor;
    known record;
    picked record;
    is_left boolean[] := '{}'; -- of each queue that jobs were taken from, whether there are more
    its_fence bigint;
    its_ids text[] := '{}';
    its_picks bigint;
    total integer;
BEGIN
    SELECT c.wall, c.boot, c.epoch INTO clock
    FROM tidemill.read_clock(given_wall, expected, heard) AS c;
    plain := of_worker IS NOT NULL;
    wall := clock.wall;
    boot := clock.boot;
    epoch := clock.epoch;
    IF NOT plain THEN
        RETURN NEXT;
        RETURN;
    END IF;
    LOOP
        SELECT w.number INTO last_number FROM tidemill.workers AS w WHERE w.id = of_worker FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO tidemill.workers AS w (id, number, lease, seen)
        VALUES (of_worker, 0, clock.boot + for_seconds, clock.wall)
        ON CONFLICT DO NOTHING;
    END LOOP;
    total := cardinality(queues);
    beginning := tidemill.usable(NULL, clock.wall, clock.boot, 0);
    IF last_number >= its_number OR EXISTS (
        SELECT FROM tidemill.queues AS q
        WHERE q.name = ANY(queues) AND NOT EXISTS (SELECT FROM tidemill.passing FOR SHARE) AND (
            NOT q.gives
            OR EXISTS (SELECT FROM tidemill.lanes AS l WHERE l.queue = q.name AND l.lane > '' OFFSET 0)
            OR EXISTS (
                SELECT FROM tidemill.jobs AS j
                WHERE j.queue = q.name AND j.state = 'scheduled' AND j.due <= clock.wall AND j.lane > '' OFFSET 0
            )
            OR EXISTS (
                SELECT FROM tidemill.jobs AS j
                WHERE j.queue = q.name AND j.expires IS NOT NULL
                AND j.state IN ('scheduled', 'ready', 'waiting') AND j.expires <= clock.wall
                AND (j.state <> 'ready' OR ( -- else it is in a folded claim, and runs
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
    UPDATE tidemill.workers AS w SET number = its_number WHERE w.id = of_worker;
    -- Twice round: the shares, and then what is left. What was not there when it was asked whether all is plain
    -- may have come since: jobs with keys, and jobs that have expired, are left to the next claim.
    WHILE at < 2 * total LOOP
        name := queues[at % total + 1];
        IF at < total THEN
            IF EXISTS (
                SELECT FROM tidemill.jobs AS j
                WHERE j.queue = name AND j.lane = '' AND j.state = 'scheduled' AND j.due <= clock.wall
            ) THEN
                PERFORM tidemill.open_lane(name);
                WITH now_due AS MATERIALIZED (
                    SELECT o.ctid AS at FROM tidemill.jobs AS o
                    WHERE o.queue = name AND o.lane = '' AND o.state = 'scheduled' AND o.due <= clock.wall
                    ORDER BY o.due, o.seq LIMIT 250 FOR UPDATE SKIP LOCKED
                ), made AS (
                    UPDATE tidemill.jobs AS j SET state = 'ready'
                    WHERE j.ctid = ANY(ARRAY(SELECT d.at FROM now_due AS d))
                    RETURNING j.queue, j.lane, j.priority, j.due, j.seq, j.id, j.fence, j.expires
                ), in_line AS (
                    INSERT INTO tidemill.ready AS r (queue, lane, priority, due, seq, id, fence, expires)
                    SELECT m.queue, m.lane, m.priority, m.due, m.seq, m.id, m.fence, m.expires FROM made AS m
                    RETURNING r AS row
                )
                SELECT array_agg(i.row) INTO came FROM in_line AS i;
                PERFORM tidemill.lower_floors(came);
                rung := rung || name;
            END IF;
            wanted := LEAST(shares[at + 1], left_over);
        ELSE
            wanted := left_over;
        END IF;
        at := at + 1;
        CONTINUE WHEN wanted <= 0;
        SELECT l.floor, c.last_value INTO known
        FROM tidemill.lanes AS l, tidemill.lowerings AS c WHERE l.queue = name AND l.lane = '';
        SELECT t.ids, t.next INTO picked FROM tidemill.take_from_line(
            name, wanted, clock.wall, its_fence,
            tidemill.usable(known.floor, clock.wall, clock.boot, known.last_value)
        ) AS t;
        CONTINUE WHEN picked.ids IS NULL;
        -- Not before all of them are out of the line: nobody can have given any of them a later fence.
        its_fence := COALESCE(its_fence, nextval('tidemill.fences'));
        its_ids := its_ids || picked.ids;
        taken := cardinality(picked.ids);
        RETURN QUERY
        SELECT j.id, j.queue, j.task, j.payload, j.attempts, j.priority, j.crashes, j.generation, j.timeout,
            j.trace, j.created, j.due, j.part, j.in_flow, its_fence,
            true, clock.wall, clock.boot, clock.epoch, NULL::boolean, NULL::double precision, NULL::text[]
        FROM tidemill.jobs AS j WHERE j.id = ANY(picked.ids) ORDER BY j.priority, j.due, j.seq;
        left_over := left_over - taken;
        SELECT setval('tidemill.picks', p.last_value + taken) INTO its_picks FROM tidemill.picks AS p;
        is_left[(at - 1) % total + 1] := tidemill.is_in_line(name, COALESCE(picked.next, beginning));
        PERFORM FROM tidemill.lanes AS l WHERE l.queue = name AND l.lane = '' FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE tidemill.lanes AS l
            SET served = its_picks, vacant = NOT is_left[(at - 1) % total + 1],
                floor = picked.next
            WHERE l.queue = name AND l.lane = '';
        END IF;
    END LOOP;
    IF its_fence IS NOT NULL THEN
        INSERT INTO tidemill.claims (fence, claim, worker, number, lease, started, open, jobs)
        VALUES (its_fence, claim_id, of_worker, its_number, clock.boot + for_seconds, clock.wall,
            cardinality(its_ids), its_ids);
    END IF;
    more := COALESCE(true = ANY(is_left), false);
    FOR at IN 1..total LOOP
        name := queues[at];
        more := more OR COALESCE(is_left[at], tidemill.is_in_line(name, beginning));
        next_due := LEAST(next_due, (
            SELECT j.due FROM tidemill.jobs AS j WHERE j.queue = name AND j.state = 'scheduled'
            ORDER BY j.due LIMIT 1
        ));
    END LOOP;
    id := NULL;
    promoted := rung;
    fence := its_fence;
    RETURN NEXT;
END
$$;

-- What most settlements are: jobs of one claim, and all of them are done. `held` says whether anybody holds units.
-- Answers as settle_others does; both are called by settle_plain, which says how to plan.
CREATE FUNCTION tidemill.settle_done(
    wall double precision, held boolean, ids text[], its_fence bigint, its_claim bigint, results text[],
    OUT done bigint[], OUT rung text[], OUT parts text[]
) LANGUAGE plpgsql AS $$
DECLARE
    its record;
    queues text[];
    gone integer;
BEGIN
    SELECT c.fence, c.worker, c.number, c.lease, c.started INTO its
    FROM tidemill.claims AS c WHERE c.fence = its_fence AND c.claim = its_claim;
    WITH settled AS (
        UPDATE tidemill.jobs AS j
        SET state = 'done', attempts = j.attempts + 1, finished = wall, reason = NULL, result = s.result,
            error = NULL, folded = j.state = 'ready', fence = its_fence, claim = its_claim,
            alone = CASE WHEN j.state = 'ready' THEN j.crashes > 0 ELSE j.alone END,
            worker = CASE WHEN j.state = 'ready' THEN its.worker ELSE j.worker END,
            number = CASE WHEN j.state = 'ready' THEN its.number ELSE j.number END,
            lease = CASE WHEN j.state = 'ready' THEN its.lease ELSE j.lease END,
            started = CASE WHEN j.state = 'ready' THEN its.started ELSE j.started END,
            progress = CASE WHEN j.state = 'running' THEN j.progress END,
            note = CASE WHEN j.state = 'running' THEN j.note END,
            call = CASE WHEN j.state = 'running' THEN j.call ELSE '' END
        FROM unnest(ids, results) WITH ORDINALITY AS s (id, result)
        WHERE j.id = ANY(ARRAY[s.id]) AND (
            j.state || '' = 'ready' AND j.fence < its.fence
            OR j.state || '' = 'running' AND j.fence = its_fence AND j.claim = its_claim
        )
        AND j.unique_key IS NULL AND j.needs IS NULL AND j.extra IS NULL
        AND NOT (held AND EXISTS (
            SELECT FROM tidemill.reservations AS r
            WHERE r.job = s.id AND r.fence = its_fence AND r.claim = its_claim OFFSET 0
        ))
        RETURNING j.id, j.queue, s.ordinality AS number, j.folded, j.flow
    ), counted AS (
        INSERT INTO tidemill.history AS h (queue, minute, done)
        SELECT s.queue, floor(wall / 60) * 60, count(*) FROM settled AS s GROUP BY s.queue
        RETURNING h.queue
    )
    SELECT array_agg(s.number), count(*) FILTER (WHERE s.folded), ARRAY(SELECT c.queue FROM counted AS c),
        array_agg(s.id) FILTER (WHERE s.flow IS NOT NULL)
    INTO done, gone, queues, parts FROM settled AS s;
    IF gone > 0 THEN
        PERFORM tidemill.leave_claim(its_fence, gone);
    END IF;
    rung := ARRAY(SELECT q.name FROM tidemill.queues AS q WHERE q.name = ANY(queues) AND q.rings);
END
$$;

-- Whatever else became of jobs. Answers which of them (from 1) are settled, the queues that have something to start
-- now or later, and the jobs of flows that have ended.
CREATE FUNCTION tidemill.settle_others(
    wall double precision, held boolean, ids text[], fences bigint[], claims bigint[], kinds text[],
    results text[], errors text[], reasons text[], delays double precision[], priorities integer[],
    OUT done bigint[], OUT rung text[], OUT parts text[]
) LANGUAGE plpgsql AS $$
DECLARE
    left_claims bigint[];
    came tidemill.ready[];
BEGIN
    WITH open AS MATERIALIZED (
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
            -- What a claim writes, of jobs in a folded one.
            folded = j.state = 'ready', fence = s.fence, claim = s.claim,
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
                u.ordinality, o.fence AS folded, o.worker, o.number, o.lease, o.started
            FROM unnest(ids, fences, claims, kinds, results, errors, reasons, delays, priorities)
                WITH ORDINALITY AS u (id, fence, claim, kind, result, error, reason, delay, priority)
            LEFT JOIN open AS o
                ON o.fence = COALESCE(u.fence, fences[1]) AND o.claim = COALESCE(u.claim, claims[1])
        ) AS s
        WHERE j.id = ANY(ARRAY[s.id]) AND (
            j.state || '' = 'running' AND j.fence = s.fence AND j.claim = s.claim
            OR j.state || '' = 'ready' AND j.fence < s.folded
        )
        AND j.unique_key IS NULL AND j.needs IS NULL AND j.extra IS NULL
        AND (j.lane = '' OR s.kind IN ('done', 'fail', 'cancelled') OR s.delay > 0)
        AND NOT (held AND EXISTS (
            SELECT FROM tidemill.reservations AS r
            WHERE r.job = s.id AND r.fence = s.fence AND r.claim = s.claim OFFSET 0
        ))
        RETURNING j.id, j.queue, j.state, s.ordinality AS number, s.kind, s.error, j.generation, j.attempts,
            j.started, j.worker, CASE WHEN j.folded THEN j.fence END AS left_claim, j.lane, j.priority, j.due,
            j.seq, j.fence, j.expires, j.flow
    ), in_line AS (
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
            SELECT FROM tidemill.queues AS q WHERE q.name = s.queue AND q.rings
        )),
        array_agg(s.id) FILTER (WHERE s.flow IS NOT NULL AND s.state NOT IN ('ready', 'scheduled')),
        ARRAY(SELECT i.row FROM in_line AS i)
    INTO done, left_claims, rung, parts, came FROM settled AS s;
    PERFORM tidemill.lower_floors(came);
    PERFORM tidemill.leave_claim(l.fence, count(*)::integer)
    FROM unnest(left_claims) AS l (fence) GROUP BY l.fence ORDER BY l.fence;
END
$$;

-- What became of plain jobs. `kinds` are the tags of core.outcomes. A list of fences, claims or kinds may end
-- early, as above, and any other but that of the ids may be empty. Answers which of them (from 1) are left to
-- be settled otherwise, the queues that have something to start now or later, whether jobs of flows
-- have ended, and the clocks.
CREATE FUNCTION tidemill.settle_plain(
    given_wall double precision, expected double precision, heard bigint, ids text[], fences bigint[],
    claims bigint[], kinds text[], results text[], errors text[], reasons text[],
    delays double precision[], priorities integer[], OUT left_over integer[], OUT rung text[],
    OUT stirred boolean, OUT wall double precision, OUT boot double precision, OUT epoch bigint
) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    name text;
    done bigint[];
    parts text[];
    held boolean;
BEGIN
    -- A claim in the same transaction asks for it when the jobs are locked, and who closes a queue may want those.
    PERFORM FROM tidemill.passing FOR SHARE;
    SELECT c.wall, c.boot, c.epoch INTO wall, boot, epoch
    FROM tidemill.read_clock(given_wall, expected, heard) AS c;
    held := EXISTS (SELECT FROM tidemill.reservations);
    IF kinds = '{done}' AND cardinality(fences) = 1 AND cardinality(claims) = 1 THEN
        SELECT s.done, s.rung, s.parts INTO done, rung, parts
        FROM tidemill.settle_done(wall, held, ids, fences[1], claims[1], results) AS s;
    ELSE
        SELECT s.done, s.rung, s.parts INTO done, rung, parts
        FROM tidemill.settle_others(
            wall, held, ids, fences, claims, kinds, results, errors, reasons, delays, priorities
        ) AS s;
    END IF;
    stirred := parts IS NOT NULL;
    IF stirred THEN
        PERFORM tidemill.stir_flows(parts);
    END IF;
    left_over := '{}';
    IF COALESCE(cardinality(done), 0) < cardinality(ids) THEN
        left_over := ARRAY(
            SELECT o.number FROM generate_series(1, cardinality(ids)) AS o (number)
            WHERE o.number <> ALL(COALESCE(done, '{}'))
        );
    END IF;
    FOREACH name IN ARRAY COALESCE(rung, '{}') LOOP
        IF EXISTS (SELECT FROM tidemill.lanes AS l WHERE l.queue = name AND l.lane = '' AND l.vacant)
            AND EXISTS (SELECT FROM tidemill.ready AS r WHERE r.queue = name AND r.lane = '')
        THEN
            PERFORM tidemill.open_lane(name);
        END IF;
    END LOOP;
END
$$;

-- A worker says what it holds. Jobs that outlive a heartbeat are unfolded: leases, progress and notes are theirs
-- alone. `plain` is false, and nothing more was changed, when a job runs in its name that it does not list.
-- `current` says of each listed claim whether it is; one that somebody has locked just now (its own handler's
-- transaction, a person who cancels it) is renewed the next time.
CREATE FUNCTION tidemill.extend_plain(
    given_wall double precision, expected double precision, heard bigint, of_worker text, received bigint,
    for_seconds double precision, its_host text, its_pid bigint, its_queues text, its_concurrency integer,
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
    FROM tidemill.read_clock(given_wall, expected, heard) AS c;
    -- Before any of them is left: a settlement of several claims leaves them in their order, too.
    known := ARRAY(
        SELECT c.fence FROM tidemill.claims AS c
        WHERE c.worker = of_worker AND c.number <= received ORDER BY c.fence FOR UPDATE
    );
    IF known <> '{}' THEN
        PERFORM tidemill.unfold(known, waits => false);
        UPDATE tidemill.claims AS c SET lease = boot + for_seconds
        FROM unnest(known) AS k (fence) WHERE c.fence = k.fence;
    END IF;
    SELECT array_agg(j.id IS NOT NULL ORDER BY h.ordinality),
        count(*) FILTER (WHERE j.state = 'running' AND j.number <= received AND j.worker = of_worker)
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
        WHERE j.state = 'running' AND j.worker = of_worker AND j.number <= received
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
    SET lease = CASE WHEN h.renewed THEN boot + for_seconds ELSE j.lease END,
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
    INSERT INTO tidemill.workers AS w (id, number, lease, seen, agreed, host, pid, queues, concurrency)
    VALUES (of_worker, 0, boot + for_seconds, wall, CASE WHEN heard = epoch THEN heard END,
        its_host, its_pid, its_queues, its_concurrency)
    ON CONFLICT (id) DO UPDATE SET lease = EXCLUDED.lease, seen = EXCLUDED.seen, agreed = EXCLUDED.agreed,
        host = EXCLUDED.host, pid = EXCLUDED.pid, queues = EXCLUDED.queues, concurrency = EXCLUDED.concurrency;
END
$$;
