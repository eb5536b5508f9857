-- What a step made of pools and of who holds units. $1 is a JSON array of rows, or as said.

-- name: pools
INSERT INTO tidemill.pools (name, declared, override)
SELECT name, declared, override FROM json_populate_recordset(NULL::tidemill.pools, $1::json)
ON CONFLICT (name) DO UPDATE SET declared = EXCLUDED.declared, override = EXCLUDED.override;

-- name: accounts
INSERT INTO tidemill.accounts (pool, key, looked, account)
SELECT pool, key, looked, account FROM json_populate_recordset(NULL::tidemill.accounts, $1::json)
ON CONFLICT (pool, key) DO UPDATE SET looked = EXCLUDED.looked, account = EXCLUDED.account;

-- name: end_reservations
-- $1 jobs, $2 fences, $3 claims
DELETE FROM tidemill.reservations AS r
USING unnest($1::text[], $2::bigint[], $3::bigint[]) AS w (job, fence, claim)
WHERE r.job = w.job AND r.fence = w.fence AND r.claim = w.claim;

-- name: reservations
INSERT INTO tidemill.reservations (job, fence, claim, number, pool, key, reserved)
SELECT job, fence, claim, number, pool, key, reserved
FROM json_populate_recordset(NULL::tidemill.reservations, $1::json);

-- name: left_units
INSERT INTO tidemill.left_units (job, fence, claim, worker, lease)
SELECT job, fence, claim, worker, lease FROM json_populate_recordset(NULL::tidemill.left_units, $1::json)
ON CONFLICT (job, fence, claim) DO UPDATE SET worker = EXCLUDED.worker, lease = EXCLUDED.lease;

-- name: end_left_units
-- $1 jobs, $2 fences, $3 claims
DELETE FROM tidemill.left_units AS u
USING unnest($1::text[], $2::bigint[], $3::bigint[]) AS w (job, fence, claim)
WHERE u.job = w.job AND u.fence = w.fence AND u.claim = w.claim;

-- name: unheard
INSERT INTO tidemill.unheard (job, fence, claim, since)
SELECT job, fence, claim, since FROM json_populate_recordset(NULL::tidemill.unheard, $1::json)
ON CONFLICT (job, fence, claim) DO UPDATE SET since = EXCLUDED.since;

-- name: heard
-- $1 jobs, $2 fences, $3 claims
DELETE FROM tidemill.unheard AS u
USING unnest($1::text[], $2::bigint[], $3::bigint[]) AS w (job, fence, claim)
WHERE u.job = w.job AND u.fence = w.fence AND u.claim = w.claim;

-- name: minutes
-- $1 pools, $2 minutes
SELECT h.pool, h.minute, h.calls, h.units, h.refusals
FROM unnest($1::text[], $2::double precision[]) AS w (pool, minute)
JOIN tidemill.pool_history AS h ON h.pool = w.pool AND h.minute = w.minute;

-- name: history
INSERT INTO tidemill.pool_history (pool, minute, calls, units, refusals)
SELECT pool, minute, calls, units, refusals
FROM json_populate_recordset(NULL::tidemill.pool_history, $1::json)
ON CONFLICT (pool, minute) DO UPDATE SET calls = EXCLUDED.calls, units = EXCLUDED.units,
    refusals = EXCLUDED.refusals;
