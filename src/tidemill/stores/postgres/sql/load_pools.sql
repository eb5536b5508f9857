-- Loads pools, accounts and reservations for an engine transaction.

-- name: pools
-- $1 names
SELECT name, declared, override FROM tidemill.pools WHERE name = ANY($1::text[]);

-- name: names
SELECT name FROM tidemill.pools ORDER BY name;

-- name: accounts
-- $1 pools, $2 keys
SELECT a.pool, a.key, a.account
FROM unnest($1::text[], $2::text[]) AS w (pool, key)
JOIN tidemill.accounts AS a ON a.pool = w.pool AND a.key = w.key;

-- name: account_keys
-- $1 pools
SELECT pool, key FROM tidemill.accounts WHERE pool = ANY($1::text[]) ORDER BY pool, key;

-- name: reserved
-- $1 jobs, $2 fences, $3 claims
SELECT r.job, r.fence, r.claim, r.reserved
FROM unnest($1::text[], $2::text[]::bigint[], $3::text[]::bigint[]) AS w (job, fence, claim)
JOIN tidemill.reservations AS r ON r.job = w.job AND r.fence = w.fence AND r.claim = w.claim
ORDER BY r.number;

-- name: reserved_at
-- $1 pools, $2 keys
SELECT w.pool, w.key, (
    SELECT count(*) FROM tidemill.reservations AS r WHERE r.pool = w.pool AND r.key = w.key
) AS open
FROM unnest($1::text[], $2::text[]) AS w (pool, key);

-- name: claims_on
-- $1 pools
SELECT DISTINCT pool, job, fence, claim FROM tidemill.reservations WHERE pool = ANY($1::text[])
ORDER BY pool, fence, job;

-- name: abandoned_claims
-- $1 boot, $2 workers
SELECT job, fence, claim FROM tidemill.abandoned_units
WHERE lease <= $1 OR worker = ANY($2::text[]) ORDER BY fence, job;

-- name: unconfirmed_units
-- $1 jobs, $2 fences, $3 claims
SELECT u.job, u.fence, u.claim, u.since
FROM unnest($1::text[], $2::text[]::bigint[], $3::text[]::bigint[]) AS w (job, fence, claim)
JOIN tidemill.unconfirmed_units AS u ON u.job = w.job AND u.fence = w.fence AND u.claim = w.claim;
