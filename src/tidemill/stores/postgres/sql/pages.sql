-- Pages of jobs for which so many are looked at and no more. `pages.py` puts statements together from these pieces.

-- name: plan_for_indexes (for this transaction; a table that was empty when it was analysed would be read whole)
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('jit', 'off', true);

-- name: at
seq = ANY({}::text[]::bigint[])

-- name: newest_places (gathered first, or the table is read in its order for them)
WITH places AS MATERIALIZED ({}) SELECT seq FROM places ORDER BY seq DESC LIMIT {};

-- name: next_of_all (behind those that are looked at)
SELECT seq FROM tidemill.jobs WHERE {} ORDER BY seq DESC OFFSET {} LIMIT 1;

-- name: many
SELECT 1 FROM ({}) AS places OFFSET {} LIMIT 1;

-- name: before
seq < {}

-- name: behind
seq > {}

-- name: queue
queue = {}

-- name: due_since
due >= {}

-- name: due_until
due < {}

-- name: finished_since
finished >= {}

-- name: finished_until
finished < {}

-- name: flow
flow = {}

-- name: begins
(id >= {0} AND id <= {0} || repeat(chr(1114111), 200))

-- name: any_queue (so that what stands behind the queue in an index is searched, too)
queue = ANY(ARRAY(SELECT name FROM tidemill.queues))

-- name: jobs
SELECT seq FROM tidemill.jobs WHERE true

-- name: ready
SELECT seq FROM tidemill.ready WHERE true

-- name: scheduled
SELECT seq FROM tidemill.jobs WHERE state = 'scheduled'

-- name: waiting
SELECT seq FROM tidemill.jobs WHERE state = 'waiting'

-- name: running
SELECT seq FROM tidemill.jobs WHERE state = 'running'

-- name: folded (their rows say that they are ready)
SELECT seq FROM tidemill.folded WHERE true

-- name: ended (asks for nothing that its index does not have)
SELECT seq FROM tidemill.jobs WHERE finished IS NOT NULL AND state = '{}'

-- name: ended_alone (in the index those of flows stand apart, and behind that the times)
SELECT seq FROM tidemill.jobs WHERE finished IS NOT NULL AND state = '{}' AND (flow IS NULL) IS TRUE

-- name: ended_in_flows
SELECT seq FROM tidemill.jobs WHERE finished IS NOT NULL AND state = '{}' AND (flow IS NULL) IS FALSE
