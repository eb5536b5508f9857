-- Statements shared by all verbs: whole jobs, counters, history, known ids and lanes.

-- name: by_id  (carray of ids)
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, deferred_needs, flow
FROM jobs WHERE id IN carray(?);

-- name: successors  (carray of the ids they wait for)
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, deferred_needs, flow
FROM jobs WHERE state = 'waiting' AND after IN carray(?) ORDER BY seq;

-- name: next_seq  a seq is never used twice, even if the last job was deleted
SELECT 1 + max(coalesce((SELECT max(seq) FROM jobs), 0),
               coalesce((SELECT value FROM counters WHERE queue = '' AND name = 'seq'), 0));

-- name: keep_seq  (seq) the row is deleted; its number stays used
INSERT INTO counters (queue, name, value) VALUES ('', 'seq', ?)
ON CONFLICT (queue, name) DO UPDATE SET value = max(value, excluded.value);

-- name: add
INSERT INTO jobs
      (seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, deferred_needs, flow)
VALUES
      (:seq, :id, :queue, :task, :payload, :state, :priority, :lane, :created, :due, :expires, :timeout, :trace,
       :tags, :attempts, :crashes, :generation, :unique_key, :unique_until, :unique_holds, :after, :fence, :claim,
       :worker, :number, :lease, :alone, :started, :finished, :result, :error, :reason, :progress, :note, :part,
       :unknown_for, :needs, :batching, :call, :deferred_needs, :flow);

-- name: save
UPDATE jobs SET
       task = :task, payload = :payload, state = :state, priority = :priority, lane = :lane, due = :due,
       expires = :expires, timeout = :timeout, trace = :trace, tags = :tags, attempts = :attempts, crashes = :crashes,
       generation = :generation, unique_key = :unique_key, unique_until = :unique_until,
       unique_holds = :unique_holds, after = :after, fence = :fence, claim = :claim, worker = :worker,
       number = :number, lease = :lease, alone = :alone, started = :started, finished = :finished,
       result = :result, error = :error, reason = :reason, progress = :progress, note = :note, part = :part,
       unknown_for = :unknown_for, needs = :needs, batching = :batching, call = :call,
       deferred_needs = :deferred_needs
WHERE seq = :seq;

-- name: delete  (seq)
DELETE FROM jobs WHERE seq = ?;

-- name: delete_logs  (seq)
DELETE FROM logs WHERE job = ?;

-- name: delete_attempts  (seq)
DELETE FROM attempts WHERE job = ?;

-- name: delete_checkpoints  (seq)
DELETE FROM checkpoints WHERE job = ?;

-- name: remember_id  (id, verdict, job, fence, claim, until, until_boot)
INSERT INTO known_ids (id, verdict, job, fence, claim, until, until_boot) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET verdict = excluded.verdict, job = excluded.job, fence = excluded.fence, claim = excluded.claim,
    until = excluded.until, until_boot = excluded.until_boot;

-- name: find_known_id  (id, now, boot)
SELECT fence, claim FROM known_ids WHERE id = ? AND (until > ? OR until_boot > ?);

-- name: record_attempt  (seq, seq, generation, attempt, started, ended, worker, outcome, error)
INSERT INTO attempts (job, number, generation, attempt, started, ended, worker, outcome, error)
VALUES (?, (SELECT coalesce(max(number), 0) + 1 FROM attempts WHERE job = ?), ?, ?, ?, ?, ?, ?, ?);

-- name: delete_old_attempts  (seq, seq) keeps the last 100
DELETE FROM attempts WHERE job = ? AND number <= (SELECT max(number) - 100 FROM attempts WHERE job = ?);

-- name: mark_document  (kind, document, job) adds the document to the worklist, if it exists
INSERT INTO worklist (kind, document, job)
SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM documents WHERE kind = ?1 AND id = ?2);

-- name: counter  (queue, name)
SELECT value FROM counters WHERE queue = ? AND name = ?;

-- name: counters  of all queues
SELECT queue, name, value FROM counters
WHERE queue <> '' AND name NOT IN ('done_flow_jobs', 'failed_flow_jobs', 'cancelled_flow_jobs');

-- name: advance  (name, by) increases a store-wide counter and returns it
INSERT INTO counters (queue, name, value) VALUES ('', ?, ?)
ON CONFLICT (queue, name) DO UPDATE SET value = value + excluded.value RETURNING value;

-- name: change_counter  (queue, name, change)
INSERT INTO counters (queue, name, value) VALUES (?, ?, ?)
ON CONFLICT (queue, name) DO UPDATE SET value = value + excluded.value;

-- name: count_minute  (queue, minute, done, failed, cancelled, retried, reclaimed, dropped_early)
INSERT INTO history (queue, minute, done, failed, cancelled, retried, reclaimed, dropped_early)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, minute) DO UPDATE
SET done = done + excluded.done, failed = failed + excluded.failed,
    cancelled = cancelled + excluded.cancelled, retried = retried + excluded.retried,
    reclaimed = reclaimed + excluded.reclaimed, dropped_early = dropped_early + excluded.dropped_early;

-- name: unblock  (queue, key) all lanes of the key
UPDATE lanes SET blocked = 0
WHERE queue = ?1 AND blocked = 1 AND lane >= ?2 AND lane < ?2 || char(32) AND (lane = ?2 OR lane > ?2 || char(31));

-- name: reopen_lanes  (queue) limits changed: every lane is tried again
UPDATE lanes SET blocked = 0 WHERE queue = ? AND blocked = 1;

-- name: head  (queue, lane)
SELECT priority, due, seq FROM jobs
WHERE state = 'ready' AND queue = ? AND lane = ?
ORDER BY priority, due, seq LIMIT 1;

-- name: lane  (queue, lane)
SELECT priority, due, seq FROM lanes WHERE queue = ? AND lane = ?;

-- name: add_to_lane  (queue, lane, pool_set, priority, due, seq) a new lane counts as served when it appears
INSERT INTO lanes (queue, lane, pool_set, priority, due, seq, served)
VALUES (?, ?, ?, ?, ?, ?, coalesce((SELECT value FROM counters WHERE queue = '' AND name = 'picks'), 0))
ON CONFLICT (queue, lane) DO UPDATE
SET priority = excluded.priority, due = excluded.due, seq = excluded.seq
WHERE (excluded.priority, excluded.due, excluded.seq) < (priority, due, seq);

-- name: new_lane  (queue, lane, pool_set, priority, due, seq, served)
INSERT INTO lanes (queue, lane, pool_set, priority, due, seq, served) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: move_lane  (priority, due, seq, served, queue, lane)
UPDATE lanes SET priority = ?, due = ?, seq = ?, served = coalesce(?, served) WHERE queue = ? AND lane = ?;

-- name: unblock_for_priority  (queue, lane, priority) the new head of a blocked lane is more urgent
-- Separate, because writing `blocked` updates every index that contains it.
UPDATE lanes SET blocked = 0 WHERE queue = ? AND lane = ? AND blocked = 2 AND priority > ?;

-- name: unblock_lane  (queue, lane) the head of a blocked lane changed: a more urgent job, or the one behind it
UPDATE lanes SET blocked = 0 WHERE queue = ? AND lane = ? AND blocked = 2;

-- name: add_to_batch  (queue, lane, jobs) new jobs of a waiting batch; opens the lane when enough have arrived
UPDATE lanes SET blocked = CASE WHEN missing_jobs > ?3 THEN 2 ELSE 0 END, missing_jobs = missing_jobs - ?3
WHERE queue = ?1 AND lane = ?2 AND blocked = 2 AND waits_for = char(31);

-- name: unblock_batch  (queue, lane) another change of a waiting batch
UPDATE lanes SET blocked = 0 WHERE queue = ? AND lane = ? AND blocked = 2 AND waits_for = char(31);

-- name: restart_batch  (queue, lane) a call was taken: the remaining jobs wait for their own time
UPDATE lanes SET wake_at = 0, waits_for = '' WHERE queue = ? AND lane = ?;

-- name: delete_lane  (queue, lane)
DELETE FROM lanes WHERE queue = ? AND lane = ?;
