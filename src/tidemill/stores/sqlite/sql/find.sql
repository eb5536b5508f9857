-- Finds jobs by filter. `find.py` builds a statement from these parts: `rows`, WHERE, a condition for each
-- field that the filter sets, and an order. If few jobs can match, `seq IN` with the statements at the end. A
-- condition on texts and fields may match too often, never too rarely: `core.filters.matches_filter` checks
-- each row again.

-- name: rows
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, deferred_needs, flow
FROM jobs

-- name: newest_first
ORDER BY seq DESC

-- name: oldest_first
ORDER BY seq

-- name: before
seq < :before

-- name: ids
id IN (SELECT value FROM json_each(:ids))

-- name: after
seq > :lower_bound

-- name: next_of_seqs  the first one that the page does not read
SELECT seq FROM ({}) ORDER BY seq DESC LIMIT 1 OFFSET :most

-- name: next_of_all
SELECT seq FROM jobs WHERE {} ORDER BY seq DESC LIMIT 1 OFFSET :most

-- name: starts_with
id >= :id_prefix AND id <= :id_prefix_end

-- name: id_prefix
SELECT seq FROM jobs INDEXED BY jobs_id WHERE id >= :id_prefix AND id <= :id_prefix_end

-- name: has_more_than
SELECT 1 FROM ({}) LIMIT 1 OFFSET :most

-- name: queue
queue = :queue

-- name: any_queue  lets SQLite search the index columns behind the queue
queue IN (SELECT name FROM queues)

-- name: states
state IN (SELECT value FROM json_each(:states))

-- name: task
task = :task

-- name: key  a lane is its key, or starts with it if there are pools
(lane = :key OR substr(lane, 1, length(:key) + 1) = :key || char(31))

-- name: tag
instr(tags, :tag)

-- name: flow  the first condition selects the partial index
flow IS NOT NULL AND flow ->> '$.id' = :flow

-- name: created_since
created >= :since

-- name: created_until
created < :until

-- name: due_since
due >= :since

-- name: due_until
due < :until

-- name: finished_since
finished >= :since

-- name: finished_until
finished < :until

-- name: text  a payload with escapes may spell the text differently
(instr(lower(payload), :quoted_text) OR instr(lower(task), :text) OR instr(lower(lane), :text)
 OR instr(lower(tags), :quoted_text) OR instr(lower(note), :text) OR instr(lower(reason), :text)
 OR instr(lower(error), :quoted_text) OR instr(payload, '\') AND (instr(payload, '\u') OR instr(payload, '\/')))

-- name: caseless_text  a text without letters needs no lower(): half the cost
(instr(payload, :quoted_text) OR instr(task, :text) OR instr(lane, :text)
 OR instr(tags, :quoted_text) OR instr(note, :text) OR instr(reason, :text)
 OR instr(error, :quoted_text) OR instr(payload, '\') AND (instr(payload, '\u') OR instr(payload, '\/')))

-- name: field  (one of several, numbered) a text that the payload contains if it has the field
(instr(payload, :field_) OR instr(payload, '\') AND (instr(payload, '\u') OR instr(payload, '\/')))

-- name: ready
SELECT seq FROM jobs INDEXED BY jobs_ready WHERE state = 'ready'

-- name: scheduled
SELECT seq FROM jobs INDEXED BY jobs_scheduled WHERE state = 'scheduled'

-- name: waiting
SELECT seq FROM jobs INDEXED BY jobs_waiting WHERE state = 'waiting'

-- name: running
SELECT seq FROM jobs INDEXED BY jobs_running WHERE state = 'running'

-- name: ended  both index ranges: with a flow, and without
SELECT seq FROM jobs INDEXED BY jobs_ended
WHERE finished IS NOT NULL AND (flow IS NOT NULL) IN (0, 1) AND state IN (SELECT value FROM json_each(:states))
