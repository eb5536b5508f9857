-- Leadership by a lease, and what maintenance has to do.

-- name: lead  (service, worker, lease, worker, boot)
INSERT INTO leaders (service, worker, lease) VALUES (?, ?, ?)
ON CONFLICT (service) DO UPDATE SET worker = excluded.worker, lease = excluded.lease
WHERE worker = ? OR lease <= ?
RETURNING worker;

-- name: free_at  (carray of services, worker) when the first lease of another worker ends
SELECT min(lease) FROM leaders WHERE service IN carray(?) AND worker <> ?;

-- name: arrivals
SELECT EXISTS (SELECT 1 FROM arrivals);

-- name: due  (kind, now) seconds until a document of that kind has to be advanced
SELECT CASE WHEN EXISTS (SELECT 1 FROM worklist WHERE kind = ?1) THEN 0.0
ELSE (SELECT max(0.0, min(due) - ?2) FROM documents WHERE kind = ?1 AND due IS NOT NULL) END;

-- name: resign  (service, worker)
DELETE FROM leaders WHERE service = ? AND worker = ?;
