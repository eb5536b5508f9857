-- Requests written straight into the database, and how they become jobs.

-- name: oldest  (after, limit) as bytes: an outsider may have written anything
SELECT seq, CAST(id AS BLOB), CAST(task AS BLOB), CAST(payload AS BLOB), CAST(options AS BLOB), arrived FROM arrivals WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: take  (seq)
DELETE FROM arrivals WHERE seq = ? RETURNING seq;
