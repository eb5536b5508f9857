-- Arrivals: requests that other programs wrote into the database.

-- name: oldest  (after, limit) as bytes: another program may have written invalid text
SELECT seq, CAST(id AS BLOB), CAST(task AS BLOB), CAST(payload AS BLOB), CAST(options AS BLOB), arrived FROM arrivals WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: take  (seq)
DELETE FROM arrivals WHERE seq = ? RETURNING seq;
