-- Folded claims. A claim of plain jobs takes them out of the line (`ready`) and writes one row of `claims`; the
-- rows of the jobs stay as they are. So a job whose row says 'ready' and that does not stand in the line is in a
-- folded claim: in the one that lists it and whose fence is higher than that of its row. Whoever takes it out of
-- there, by settling it or by unfolding it, writes the claim's fence into its row and lowers `open`; a holder
-- who comes later is refused by the fence. Most claims are settled before anything else is asked of them.
--
-- To unfold is to write into the rows of the jobs what the claim would have written there.
-- Locks are taken in this order: rows of jobs by their ids, the line, rows of claims by their fences. Only a
-- heartbeat takes its claims first: it waits for no row of a job.
--
-- Which rows are looked up by which is said by the way it is written (LATERAL with OFFSET 0, subqueries that give
-- one value): a server that takes a table for empty would rather read it whole.

-- The jobs in folded claims, as they are once unfolded.
CREATE VIEW tidemill.folded AS
SELECT j.seq, held.id, j.queue, j.task, j.payload, 'running' COLLATE "C" AS state, j.priority, j.lane, j.created,
    j.due, j.expires, j.timeout, j.trace, j.tags, j.attempts, j.crashes, j.generation, j.unique_key,
    j.unique_until, j.unique_holds, j.after, c.fence, c.claim, c.worker, c.number, c.lease,
    j.crashes > 0 AS alone, c.started, j.finished, j.result, j.error, j.reason,
    NULL::double precision AS progress, NULL::text AS note, j.part, j.unknown_for, j.needs, j.batching,
    '' COLLATE "C" AS call, j.extra, j.folded, j.flow, j.in_flow
FROM tidemill.claims AS c
CROSS JOIN LATERAL unnest(c.jobs) AS held (id)
CROSS JOIN LATERAL (
    SELECT * FROM tidemill.jobs AS o
    WHERE o.id = held.id AND o.state || '' = 'ready' AND o.fence < c.fence OFFSET 0
) AS j;

-- A job as everybody is to see it.
CREATE FUNCTION tidemill.shown(job tidemill.jobs) RETURNS tidemill.jobs LANGUAGE plpgsql STABLE AS $$
DECLARE
    unfolded tidemill.jobs;
BEGIN
    IF job.state <> 'ready' OR EXISTS (
        SELECT FROM tidemill.ready AS r
        WHERE r.queue = job.queue AND r.lane = job.lane AND r.priority = job.priority AND r.due = job.due
        AND r.seq = job.seq
    ) THEN
        RETURN job;
    END IF;
    SELECT f.* INTO unfolded FROM tidemill.folded AS f WHERE f.id = job.id;
    RETURN unfolded;
END
$$;

-- These jobs, whose rows the caller has locked, leave their claims and run on.
CREATE FUNCTION tidemill.unfold_jobs(ids text[], fences bigint[]) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    UPDATE tidemill.jobs AS j
    SET state = 'running', fence = c.fence, claim = c.claim, worker = c.worker, number = c.number,
        lease = c.lease, alone = j.crashes > 0, started = c.started, progress = NULL, note = NULL, call = ''
    FROM unnest(ids, fences) AS w (id, fence) JOIN tidemill.claims AS c ON c.fence = w.fence
    WHERE j.id = ANY(ARRAY[w.id]);
    PERFORM tidemill.leave_claim(w.fence, count(*)::integer)
    FROM unnest(fences) AS w (fence) GROUP BY w.fence ORDER BY w.fence;
END
$$;

-- So many jobs have left a claim. One that nobody is in any more goes.
CREATE FUNCTION tidemill.leave_claim(its_fence bigint, gone integer) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    still_open integer;
BEGIN
    DELETE FROM tidemill.claims AS c WHERE c.fence = its_fence AND c.open = gone;
    IF NOT FOUND THEN
        UPDATE tidemill.claims AS c SET open = c.open - gone WHERE c.fence = its_fence
        RETURNING c.open INTO still_open;
        IF still_open = 0 THEN -- others have left meanwhile
            DELETE FROM tidemill.claims AS c WHERE c.fence = its_fence;
        END IF;
    END IF;
END
$$;

-- Whole claims. A job that somebody has locked is being settled, or unfolded: it is passed over, unless `waits`.
CREATE FUNCTION tidemill.unfold(which bigint[], waits boolean) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ids text[];
    fences bigint[];
BEGIN
    IF which = '{}' THEN
        RETURN;
    END IF;
    SELECT array_agg(held.id ORDER BY held.id), array_agg(c.fence ORDER BY held.id) INTO ids, fences
    FROM tidemill.claims AS c CROSS JOIN LATERAL unnest(c.jobs) AS held (id) WHERE c.fence = ANY(which);
    IF waits THEN
        SELECT array_agg(j.id), array_agg(w.fence) INTO ids, fences FROM unnest(ids, fences) AS w (id, fence)
        CROSS JOIN LATERAL (
            SELECT o.id FROM tidemill.jobs AS o
            WHERE o.id = w.id AND o.state || '' = 'ready' AND o.fence < w.fence FOR UPDATE
        ) AS j;
    ELSE
        SELECT array_agg(j.id), array_agg(w.fence) INTO ids, fences FROM unnest(ids, fences) AS w (id, fence)
        CROSS JOIN LATERAL (
            SELECT o.id FROM tidemill.jobs AS o
            WHERE o.id = w.id AND o.state || '' = 'ready' AND o.fence < w.fence FOR UPDATE SKIP LOCKED
        ) AS j;
    END IF;
    IF ids IS NOT NULL THEN
        PERFORM tidemill.unfold_jobs(ids, fences);
    END IF;
END
$$;
