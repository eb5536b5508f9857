-- Requests written straight into the database, and how they become jobs.

-- name: arrive  (id, task, payload, options, arrived)
INSERT INTO arrivals (id, task, payload, options, arrived) VALUES (?, ?, ?, ?, ?);

-- name: oldest  (after, limit)
SELECT seq, id, task, payload, options, arrived FROM arrivals WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: take  (seq)
DELETE FROM arrivals WHERE seq = ? RETURNING seq;
