-- Settle. Successes, the common case, are written together; other outcomes one by one.

-- name: current_claims  (carray of ids) all jobs as one row of JSON, and whether there are reservations
SELECT json_group_array(json_array(id, seq, queue, lane, state, fence, claim, flow ->> '$.id')),
       EXISTS (SELECT 1 FROM reservations)
FROM jobs WHERE id IN carray(?);

-- name: done  (finished, carray of seqs)
UPDATE jobs
SET state = 'done', finished = ?, attempts = attempts + 1, result = NULL, error = NULL, reason = NULL
WHERE seq IN carray(?);

-- name: done_with_result  (finished, json array of [seq, result])
UPDATE jobs
SET state = 'done', finished = ?, attempts = attempts + 1, result = given.result, error = NULL, reason = NULL
FROM (SELECT value ->> 0 AS seq, value ->> 1 AS result FROM json_each(?)) AS given
WHERE jobs.seq = given.seq;
