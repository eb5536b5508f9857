-- Claim: promote due jobs, select by lane, mark as running.

-- name: due  (queue, now, limit)
SELECT seq, lane FROM jobs WHERE state = 'scheduled' AND queue = ? AND due <= ? ORDER BY due, seq LIMIT ?;

-- name: promote  (carray of seqs)
UPDATE jobs SET state = 'ready' WHERE seq IN carray(?);

-- name: queue_head  (queue) next due time, whether open lanes need pools, when the next blocked lane is tried again
SELECT (SELECT min(due) FROM jobs WHERE state = 'scheduled' AND queue = ?1),
       EXISTS (SELECT 1 FROM lanes WHERE blocked = 0 AND queue = ?1 AND pool_set > ''),
       (SELECT min(wake_at) FROM lanes INDEXED BY lanes_blocked WHERE blocked = 2 AND queue = ?1);

-- name: running  (queue)
SELECT count(*) FROM jobs INDEXED BY jobs_running WHERE state = 'running' AND queue = ?;

-- name: running_with_key  (queue, key) in all lanes of the key
SELECT (SELECT count(*) FROM jobs INDEXED BY jobs_running WHERE state = 'running' AND queue = ?1 AND lane = ?2)
     + (SELECT count(*) FROM jobs INDEXED BY jobs_running
        WHERE state = 'running' AND queue = ?1 AND lane > ?2 || char(31) AND lane < ?2 || char(32));

-- name: ready  (queue, lane, limit, offset) as one row: Python takes its interpreter lock once, not once per job
SELECT json_group_array(json_array(seq, id, task, payload, priority, lane, attempts, crashes, generation,
                                   timeout, trace, created, due, part, expires, json(needs), json(batching),
                                   json(deferred_needs), json(flow)))
FROM (SELECT seq, id, task, payload, priority, lane, attempts, crashes, generation,
             timeout, trace, created, due, part, expires, needs, batching, deferred_needs, flow
      FROM jobs WHERE state = 'ready' AND queue = ? AND lane = ?
      ORDER BY priority, due, seq LIMIT ? OFFSET ?);

-- name: mark_running  (fence, claim, worker, number, lease, started, carray of seqs)
UPDATE jobs
SET state = 'running', fence = ?, claim = ?, worker = ?, number = ?, lease = ?, started = ?,
    alone = crashes > 0, progress = NULL, note = NULL, call = ''
WHERE seq IN carray(?);

-- name: mark_call  (id of the first job of the call, number of its jobs, carray of seqs)
UPDATE jobs SET call = ?1, alone = alone AND ?2 = 1 WHERE seq IN carray(?3);

-- name: last_claim  (worker)
SELECT number FROM workers WHERE id = ?;

-- name: save_number  (worker, number, lease, seen)
INSERT INTO workers (id, number, lease, seen, host, pid, queues, concurrency)
VALUES (?, ?, ?, ?, '', 0, '[]', 0)
ON CONFLICT (id) DO UPDATE SET number = excluded.number;

-- name: of_claim  (worker, number)
SELECT seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags,
       attempts, crashes, generation, unique_key, unique_until, unique_holds, after, fence, claim, worker,
       number, lease, alone, started, finished, result, error, reason, progress, note, part, unknown_for,
       needs, batching, call, deferred_needs, flow
FROM jobs INDEXED BY jobs_running WHERE state = 'running' AND worker = ? AND number = ? ORDER BY seq;
