-- Bulk claims. A claim of plain jobs deletes their rows in `ready` and writes one row in `claims`; the rows
-- of the jobs stay unchanged. So a job whose row says 'ready' and that is not in `ready` is in a bulk claim:
-- the one that lists it and whose fence is higher than the job's. Settling or expanding the job takes it out:
-- that writes the claim's fence into its row and reduces `open_jobs`. A later settlement of the same claim is
-- refused by the fence. Most claims are settled before anything else needs their jobs.
--
-- To expand is to write into the rows of the jobs what the claim would have written there. Locks are taken in
-- this order: rows of jobs by id, `ready`, rows of claims by fence. Only a heartbeat takes its claims first:
-- it waits for no row of a job.
--
-- LATERAL with OFFSET 0, and subqueries for single values, fix which table is searched by which. A planner
-- that believes a table to be empty would scan it.

-- Jobs in bulk claims, as they would be once expanded.
CREATE VIEW tidemill.bulk_claimed AS
SELECT j.seq, held.id, j.queue, j.task, j.payload, 'running' COLLATE "C" AS state, j.priority, j.lane, j.created,
    j.due, j.expires, j.timeout, j.trace, j.tags, j.attempts, j.crashes, j.generation, j.unique_key,
    j.unique_until, j.unique_holds, j.after, c.fence, c.claim, c.worker, c.number, c.lease,
    j.crashes > 0 AS alone, c.started, j.finished, j.result, j.error, j.reason,
    NULL::double precision AS progress, NULL::text AS note, j.part, j.unknown_for, j.needs, j.batching,
    '' COLLATE "C" AS call, j.deferred_needs, j.bulk_claimed, j.flow, j.in_flow
FROM tidemill.claims AS c
CROSS JOIN LATERAL unnest(c.jobs) AS held (id)
CROSS JOIN LATERAL (
    SELECT * FROM tidemill.jobs AS o
    WHERE o.id = held.id AND o.state || '' = 'ready' AND o.fence < c.fence OFFSET 0
) AS j;

-- Returns a job as callers should see it.
CREATE FUNCTION tidemill.visible_job(job tidemill.jobs) RETURNS tidemill.jobs LANGUAGE plpgsql STABLE AS $$
DECLARE
    expanded tidemill.jobs;
BEGIN
    IF job.state <> 'ready' OR EXISTS (
        SELECT FROM tidemill.ready AS r
        WHERE r.queue = job.queue AND r.lane = job.lane AND r.priority = job.priority AND r.due = job.due
        AND r.seq = job.seq
    ) THEN
        RETURN job;
    END IF;
    SELECT f.* INTO expanded FROM tidemill.bulk_claimed AS f WHERE f.id = job.id;
    RETURN expanded;
END
$$;

-- Expands these jobs, whose rows the caller has locked: they leave their claims and run on.
CREATE FUNCTION tidemill.expand_jobs(ids text[], fences bigint[]) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    UPDATE tidemill.jobs AS j
    SET state = 'running', fence = c.fence, claim = c.claim, worker = c.worker, number = c.number,
        lease = c.lease, alone = j.crashes > 0, started = c.started, progress = NULL, note = NULL, call = ''
    FROM unnest(ids, fences) AS w (id, fence) JOIN tidemill.claims AS c ON c.fence = w.fence
    WHERE j.id = ANY(ARRAY[w.id]);
    PERFORM tidemill.shrink_claim(w.fence, count(*)::integer)
    FROM unnest(fences) AS w (fence) GROUP BY w.fence ORDER BY w.fence;
END
$$;

-- Removes a number of jobs from a claim, and deletes the claim when it is empty.
CREATE FUNCTION tidemill.shrink_claim(claim_fence bigint, job_count integer) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    still_open integer;
BEGIN
    DELETE FROM tidemill.claims AS c WHERE c.fence = claim_fence AND c.open_jobs = job_count;
    IF NOT FOUND THEN
        UPDATE tidemill.claims AS c SET open_jobs = c.open_jobs - job_count WHERE c.fence = claim_fence
        RETURNING c.open_jobs INTO still_open;
        IF still_open = 0 THEN  -- other jobs have left meanwhile
            DELETE FROM tidemill.claims AS c WHERE c.fence = claim_fence;
        END IF;
    END IF;
END
$$;

-- Expands whole claims. A locked job is being settled or expanded: it is skipped, unless `wait_for_locks`.
CREATE FUNCTION tidemill.expand_claims(claim_fences bigint[], wait_for_locks boolean) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ids text[];
    fences bigint[];
BEGIN
    IF claim_fences = '{}' THEN
        RETURN;
    END IF;
    SELECT array_agg(held.id ORDER BY held.id), array_agg(c.fence ORDER BY held.id) INTO ids, fences
    FROM tidemill.claims AS c CROSS JOIN LATERAL unnest(c.jobs) AS held (id) WHERE c.fence = ANY(claim_fences);
    IF wait_for_locks THEN
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
        PERFORM tidemill.expand_jobs(ids, fences);
    END IF;
END
$$;
