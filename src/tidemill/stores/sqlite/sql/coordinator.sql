-- Leadership by a lease record.

-- name: lead  (duty, worker, lease, worker, boot)
INSERT INTO leaders (duty, worker, lease) VALUES (?, ?, ?)
ON CONFLICT (duty) DO UPDATE SET worker = excluded.worker, lease = excluded.lease
WHERE worker = ? OR lease <= ?
RETURNING worker;

-- name: resign  (duty, worker)
DELETE FROM leaders WHERE duty = ? AND worker = ?;
