-- name: is_current (without a lock, which others would wait for: the settlement at the end checks again)
-- $1 job, $2 fence, $3 claim
SELECT j.id FROM tidemill.jobs AS j CROSS JOIN LATERAL tidemill.visible_job(j) AS s
WHERE j.id = $1 AND s.state = 'running' AND s.fence = $2 AND s.claim = $3;

-- name: use_verb_settings (the settlement's own statements follow: see connection_pool.VERB_SETTINGS)
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL lock_timeout = '5s';
SET LOCAL idle_in_transaction_session_timeout = '3s';
