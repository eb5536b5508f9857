-- What every verb shares: reading and writing whole jobs, and what follows from a change.

-- name: by_id  (carray of ids)
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, extra, flow
FROM jobs WHERE id IN carray(?);

-- name: successors  (carray of the ids they wait for)
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, extra, flow
FROM jobs WHERE state = 'waiting' AND after IN carray(?) ORDER BY seq;

-- name: next_seq  a place in line is never given twice, also when the last in line was deleted
SELECT 1 + max(coalesce((SELECT max(seq) FROM jobs), 0),
               coalesce((SELECT value FROM counters WHERE queue = '' AND name = 'seq'), 0));

-- name: gave_seq  (seq) the row is about to go; its number stays taken
INSERT INTO counters (queue, name, value) VALUES ('', 'seq', ?)
ON CONFLICT (queue, name) DO UPDATE SET value = max(value, excluded.value);

-- name: add
INSERT INTO jobs
      (seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, extra, flow)
VALUES
      (:seq, :id, :queue, :task, :payload, :state, :priority, :lane, :created, :due, :expires, :timeout, :trace,
       :tags, :attempts, :crashes, :generation, :unique_key, :unique_until, :unique_holds, :after, :fence, :claim,
       :worker, :number, :lease, :alone, :started, :finished, :result, :error, :reason, :progress, :note, :part,
       :unknown_for, :needs, :batching, :call, :extra, :flow);

-- name: save
UPDATE jobs SET
       task = :task, payload = :payload, state = :state, priority = :priority, lane = :lane, due = :due,
       expires = :expires, timeout = :timeout, trace = :trace, tags = :tags, attempts = :attempts, crashes = :crashes,
       generation = :generation, unique_key = :unique_key, unique_until = :unique_until,
       unique_holds = :unique_holds, after = :after, fence = :fence, claim = :claim, worker = :worker,
       number = :number, lease = :lease, alone = :alone, started = :started, finished = :finished,
       result = :result, error = :error, reason = :reason, progress = :progress, note = :note, part = :part,
       unknown_for = :unknown_for, needs = :needs, batching = :batching, call = :call,
       extra = :extra
WHERE seq = :seq;

-- name: drop  (seq)
DELETE FROM jobs WHERE seq = ?;

-- name: drop_logs  (seq)
DELETE FROM logs WHERE job = ?;

-- name: drop_attempts  (seq)
DELETE FROM attempts WHERE job = ?;

-- name: drop_checkpoints  (seq)
DELETE FROM checkpoints WHERE job = ?;

-- name: remember  (id, verdict, job, fence, claim, until, on_boot)
INSERT INTO remembered (id, verdict, job, fence, claim, until, on_boot) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET verdict = excluded.verdict, job = excluded.job, fence = excluded.fence, claim = excluded.claim,
    until = excluded.until, on_boot = excluded.on_boot;

-- name: recall  (id, now, boot)
SELECT fence, claim FROM remembered WHERE id = ? AND (until > ? OR on_boot > ?);

-- name: record_attempt  (seq, seq, generation, attempt, started, ended, worker, outcome, error)
INSERT INTO attempts (job, number, generation, attempt, started, ended, worker, outcome, error)
VALUES (?, (SELECT coalesce(max(number), 0) + 1 FROM attempts WHERE job = ?), ?, ?, ?, ?, ?, ?, ?);

-- name: forget_attempts  (seq, seq) keeps the last 100
DELETE FROM attempts WHERE job = ? AND number <= (SELECT max(number) - 100 FROM attempts WHERE job = ?);

-- name: stir  (kind, course, job) the course is to be looked at, if there is one
INSERT INTO stirs (kind, course, job)
SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM courses WHERE kind = ?1 AND id = ?2);

-- name: counter  (queue, name)
SELECT value FROM counters WHERE queue = ? AND name = ?;

-- name: counters  of all queues
SELECT queue, name, value FROM counters
WHERE queue <> '' AND name NOT IN ('done_parts', 'failed_parts', 'cancelled_parts');

-- name: advance  (name, by) a store-wide number; answers where it stands now
INSERT INTO counters (queue, name, value) VALUES ('', ?, ?)
ON CONFLICT (queue, name) DO UPDATE SET value = value + excluded.value RETURNING value;

-- name: change_counter  (queue, name, change)
INSERT INTO counters (queue, name, value) VALUES (?, ?, ?)
ON CONFLICT (queue, name) DO UPDATE SET value = value + excluded.value;

-- name: remark  (queue, minute, done, failed, cancelled, retried, reclaimed, dropped_early)
INSERT INTO history (queue, minute, done, failed, cancelled, retried, reclaimed, dropped_early)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, minute) DO UPDATE
SET done = done + excluded.done, failed = failed + excluded.failed,
    cancelled = cancelled + excluded.cancelled, retried = retried + excluded.retried,
    reclaimed = reclaimed + excluded.reclaimed, dropped_early = dropped_early + excluded.dropped_early;

-- name: unblock  (queue, key) every lane of that key, whatever its pools
UPDATE lanes SET blocked = 0
WHERE queue = ?1 AND blocked = 1 AND lane >= ?2 AND lane < ?2 || char(32) AND (lane = ?2 OR lane > ?2 || char(31));

-- name: reopen_lanes  (queue) limits changed: every lane is looked at again
UPDATE lanes SET blocked = 0 WHERE queue = ? AND blocked = 1;

-- name: head  (queue, lane)
SELECT priority, due, seq FROM jobs
WHERE state = 'ready' AND queue = ? AND lane = ?
ORDER BY priority, due, seq LIMIT 1;

-- name: lane  (queue, lane)
SELECT priority, due, seq FROM lanes WHERE queue = ? AND lane = ?;

-- name: arrived  (queue, lane, grp, priority, due, seq) a new lane counts as served when it is born
INSERT INTO lanes (queue, lane, grp, priority, due, seq, served)
VALUES (?, ?, ?, ?, ?, ?, coalesce((SELECT value FROM counters WHERE queue = '' AND name = 'picks'), 0))
ON CONFLICT (queue, lane) DO UPDATE
SET priority = excluded.priority, due = excluded.due, seq = excluded.seq
WHERE (excluded.priority, excluded.due, excluded.seq) < (priority, due, seq);

-- name: new_lane  (queue, lane, grp, priority, due, seq, served)
INSERT INTO lanes (queue, lane, grp, priority, due, seq, served) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: move_lane  (priority, due, seq, served, queue, lane)
UPDATE lanes SET priority = ?, due = ?, seq = ?, served = coalesce(?, served) WHERE queue = ? AND lane = ?;

-- name: try_again  (queue, lane, priority) a lane that was shut gets a head that is more urgent; apart, because
-- who writes `blocked` pays for every index of it
UPDATE lanes SET blocked = 0 WHERE queue = ? AND lane = ? AND blocked = 2 AND priority > ?;

-- name: try_anew  (queue, lane) a lane that was shut has another head: a more urgent one, or the one behind
UPDATE lanes SET blocked = 0 WHERE queue = ? AND lane = ? AND blocked = 2;

-- name: joined  (queue, lane, jobs) new jobs came to a batch that waits for company; when enough of them have come
-- it is looked at
UPDATE lanes SET blocked = CASE WHEN lacks > ?3 THEN 2 ELSE 0 END, lacks = lacks - ?3
WHERE queue = ?1 AND lane = ?2 AND blocked = 2 AND waits = char(31);

-- name: look_again  (queue, lane) something else became of a batch that waits for company
UPDATE lanes SET blocked = 0 WHERE queue = ? AND lane = ? AND blocked = 2 AND waits = char(31);

-- name: begin_anew  (queue, lane) a call was taken: whoever is left waits by his own time
UPDATE lanes SET wake = 0, waits = '' WHERE queue = ? AND lane = ?;

-- name: forget_lane  (queue, lane)
DELETE FROM lanes WHERE queue = ? AND lane = ?;
