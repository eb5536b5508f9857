-- Leadership by a lease record, and what waits to be done.

-- name: lead  (duty, worker, lease, worker, boot)
INSERT INTO leaders (duty, worker, lease) VALUES (?, ?, ?)
ON CONFLICT (duty) DO UPDATE SET worker = excluded.worker, lease = excluded.lease
WHERE worker = ? OR lease <= ?
RETURNING worker;

-- name: free_at  (carray of duties, worker) when the first lease of another is over
SELECT min(lease) FROM leaders WHERE duty IN carray(?) AND worker <> ?;

-- name: arrivals
SELECT EXISTS (SELECT 1 FROM arrivals);

-- name: due  (kind, now) in how many seconds a course of that kind waits to be advanced
SELECT CASE WHEN EXISTS (SELECT 1 FROM stirs WHERE kind = ?1) THEN 0.0
ELSE (SELECT max(0.0, min(due) - ?2) FROM courses WHERE kind = ?1 AND due IS NOT NULL) END;

-- name: resign  (duty, worker)
DELETE FROM leaders WHERE duty = ? AND worker = ?;
