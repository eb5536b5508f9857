-- Checkpoints of the steps inside a handler.

-- name: current_claims  (id)
SELECT seq, state = 'running', fence, claim FROM jobs WHERE id = ?;

-- name: by_step  (job, name, arguments)
SELECT name, arguments, paid, begun, fence, claim, try, kept, result, unknown FROM checkpoints
WHERE job = ? AND name = ? AND arguments = ?;

-- name: of_job  (id) in the order in which they were first started
SELECT name, arguments, paid, begun, fence, claim, try, kept, result, unknown FROM checkpoints
WHERE job = (SELECT seq FROM jobs WHERE id = ?) ORDER BY number;

-- name: result  (id, name, arguments)
SELECT result FROM checkpoints WHERE job = (SELECT seq FROM jobs WHERE id = ?) AND name = ? AND arguments = ?;

-- name: save  (job, name, arguments, paid, begun, fence, claim, try, kept, result, unknown)
INSERT INTO checkpoints (job, name, arguments, paid, begun, fence, claim, try, kept, result, unknown)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (job, name, arguments) DO UPDATE
SET paid = excluded.paid, begun = excluded.begun, fence = excluded.fence, claim = excluded.claim,
    try = excluded.try, kept = excluded.kept, result = excluded.result, unknown = excluded.unknown;

-- name: delete  (job, name, arguments)
DELETE FROM checkpoints WHERE job = ? AND name = ? AND arguments = ?;

-- name: delete_without_result  (job)
DELETE FROM checkpoints WHERE job = ? AND result IS NULL;
