-- name: lock (a claim that is current stays so until the transaction ends)
-- $1 job, $2 fence, $3 claim
SELECT id FROM tidemill.jobs
WHERE id = $1 AND state = 'running' AND fence = $2 AND claim = $3
FOR UPDATE;
