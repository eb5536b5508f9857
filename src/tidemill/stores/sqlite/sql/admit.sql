-- Requests written straight into the database, and how they become jobs.

-- name: arrive  (id, task, payload, options, arrived)
INSERT INTO arrivals (id, task, payload, options, arrived) VALUES (?, ?, ?, ?, ?);

-- name: oldest  (limit)
SELECT seq, id, task, payload, options, arrived FROM arrivals ORDER BY seq LIMIT ?;

-- name: take  (seq)
DELETE FROM arrivals WHERE seq = ? RETURNING seq;
