-- Reservations: units that claims hold.

-- name: has_rows
SELECT EXISTS (SELECT 1 FROM reservations);

-- name: add  (job, fence, claim, number, pool, key, reservation, probe, deferred, worker)
INSERT INTO reservations (job, fence, claim, number, pool, key, reservation, probe, deferred, worker)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: next_number  (job, fence, claim)
SELECT coalesce(max(number), 0) + 1 FROM reservations WHERE job = ? AND fence = ? AND claim = ?;

-- name: of_jobs  (carray of ids) for all their claims
SELECT job, fence, claim, pool, key, reservation, probe, deferred FROM reservations
WHERE job IN carray(?) ORDER BY job, fence, claim, number;

-- name: abandoned  (boot, json array of dead workers) of cancelled running jobs whose lease has ended
SELECT job, fence, claim, pool, key, reservation, probe, deferred FROM reservations INDEXED BY reservations_abandoned
WHERE abandoned_until IS NOT NULL AND (abandoned_until <= ?1 OR worker IN (SELECT value FROM json_each(?2)))
ORDER BY job, fence, claim, number;

-- name: end  (job, fence, claim)
DELETE FROM reservations WHERE job = ? AND fence = ? AND claim = ?;

-- name: add_unconfirmed  (job, fence, claim, now) its units were recounted; the worker may still report
INSERT OR REPLACE INTO unconfirmed_units (job, fence, claim, since) VALUES (?, ?, ?, ?);

-- name: confirm  (job, fence, claim) succeeds once
DELETE FROM unconfirmed_units WHERE job = ? AND fence = ? AND claim = ? RETURNING since;

-- name: delete_unconfirmed  (before)
DELETE FROM unconfirmed_units WHERE since <= ?;

-- name: deferred  (job, fence, claim, pool, key) for a call that the handler has not made yet
SELECT number, reservation, probe FROM reservations
WHERE job = ? AND fence = ? AND claim = ? AND pool = ? AND key = ? AND deferred ORDER BY number LIMIT 1;

-- name: of_account  (job, fence, claim, pool, key) oldest first
SELECT number, reservation, probe, deferred FROM reservations
WHERE job = ? AND fence = ? AND claim = ? AND pool = ? AND key = ? ORDER BY number;

-- name: keep  (reservation, job, fence, claim, number)
UPDATE reservations SET reservation = ?, probe = 0 WHERE job = ? AND fence = ? AND claim = ? AND number = ?;

-- name: end_one  (job, fence, claim, number)
DELETE FROM reservations WHERE job = ? AND fence = ? AND claim = ? AND number = ?;

-- name: abandon  (abandoned_until, job, fence, claim) the worker may settle them until its lease ends
UPDATE reservations SET abandoned_until = ? WHERE job = ? AND fence = ? AND claim = ?;

-- name: count  (pool, key)
SELECT count(*) FROM reservations WHERE pool = ? AND key = ?;

-- name: entered  (pool) reservations whose units are counted in windows
SELECT job, fence, claim, number, reservation FROM reservations WHERE pool = ?;

-- name: enter  (reservation, job, fence, claim, number)
UPDATE reservations SET reservation = ? WHERE job = ? AND fence = ? AND claim = ? AND number = ?;

-- name: of_pool  (pool) the number for each key
SELECT key, count(*) FROM reservations WHERE pool = ? GROUP BY key;
