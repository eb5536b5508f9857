-- Units that claims hold.

-- name: anything
SELECT EXISTS (SELECT 1 FROM reservations);

-- name: add  (job, fence, claim, number, pool, key, reservation, probe, extra, worker)
INSERT INTO reservations (job, fence, claim, number, pool, key, reservation, probe, extra, worker)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: next_number  (job, fence, claim)
SELECT coalesce(max(number), 0) + 1 FROM reservations WHERE job = ? AND fence = ? AND claim = ?;

-- name: of_jobs  (carray of ids) of all their claims
SELECT job, fence, claim, pool, key, reservation, probe, extra FROM reservations
WHERE job IN carray(?) ORDER BY job, fence, claim, number;

-- name: over  (boot, json array of dead workers) claims that were taken away by hand, and whose lease is over
SELECT job, fence, claim, pool, key, reservation, probe, extra FROM reservations INDEXED BY reservations_ends
WHERE ends IS NOT NULL AND (ends <= ?1 OR worker IN (SELECT value FROM json_each(?2)))
ORDER BY job, fence, claim, number;

-- name: end  (job, fence, claim)
DELETE FROM reservations WHERE job = ? AND fence = ? AND claim = ?;

-- name: unheard  (job, fence, claim, now) its units were counted anew, and it may speak yet
INSERT OR REPLACE INTO unheard (job, fence, claim, since) VALUES (?, ?, ?, ?);

-- name: hear  (job, fence, claim) once
DELETE FROM unheard WHERE job = ? AND fence = ? AND claim = ? RETURNING since;

-- name: forget_unheard  (before)
DELETE FROM unheard WHERE since <= ?;

-- name: kept  (job, fence, claim, pool, key) for a call that its handler has not come to yet
SELECT number, reservation, probe FROM reservations
WHERE job = ? AND fence = ? AND claim = ? AND pool = ? AND key = ? AND extra ORDER BY number LIMIT 1;

-- name: of_place  (job, fence, claim, pool, key) the oldest first
SELECT number, reservation, probe, extra FROM reservations
WHERE job = ? AND fence = ? AND claim = ? AND pool = ? AND key = ? ORDER BY number;

-- name: keep  (reservation, job, fence, claim, number)
UPDATE reservations SET reservation = ?, probe = 0 WHERE job = ? AND fence = ? AND claim = ? AND number = ?;

-- name: end_one  (job, fence, claim, number)
DELETE FROM reservations WHERE job = ? AND fence = ? AND claim = ? AND number = ?;

-- name: leave  (ends, job, fence, claim) to whoever holds them, and to the end of its lease
UPDATE reservations SET ends = ? WHERE job = ? AND fence = ? AND claim = ?;

-- name: count  (pool, key)
SELECT count(*) FROM reservations WHERE pool = ? AND key = ?;

-- name: entered  (pool) where the units of all of them are entered
SELECT job, fence, claim, number, reservation FROM reservations WHERE pool = ?;

-- name: enter  (reservation, job, fence, claim, number)
UPDATE reservations SET reservation = ? WHERE job = ? AND fence = ? AND claim = ? AND number = ?;

-- name: of_pool  (pool) how many there are of each key
SELECT key, count(*) FROM reservations WHERE pool = ? GROUP BY key;
