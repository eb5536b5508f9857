-- Pages of jobs that read a limited number of rows. `find.py` builds statements from these parts.

-- name: plan_for_indexes (for this transaction; a table that was empty when it was analysed would be scanned)
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('jit', 'off', true);

-- name: at
seq = ANY({}::text[]::bigint[])

-- name: newest_seqs (collected first, or the table is read in its order for them)
WITH seqs AS MATERIALIZED ({}) SELECT seq FROM seqs ORDER BY seq DESC LIMIT {};

-- name: next_of_all (the first one that the page does not read)
SELECT seq FROM tidemill.jobs WHERE {} ORDER BY seq DESC OFFSET {} LIMIT 1;

-- name: has_more_than
SELECT 1 FROM ({}) AS seqs OFFSET {} LIMIT 1;

-- name: before
seq < {}

-- name: after
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

-- name: starts_with
(id >= {0} AND id <= {0} || repeat(chr(1114111), 200))

-- name: any_queue (lets the planner search the index columns behind the queue)
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

-- name: bulk_claimed (their rows still say 'ready')
SELECT seq FROM tidemill.bulk_claimed WHERE true

-- name: ended (uses only columns of the index)
SELECT seq FROM tidemill.jobs WHERE finished IS NOT NULL AND state = '{}'

-- name: ended_without_flow (the index separates jobs of flows, then sorts by time)
SELECT seq FROM tidemill.jobs WHERE finished IS NOT NULL AND state = '{}' AND (flow IS NULL) IS TRUE

-- name: ended_in_flows
SELECT seq FROM tidemill.jobs WHERE finished IS NOT NULL AND state = '{}' AND (flow IS NULL) IS FALSE
