-- Another boot: a boot clock means nothing across boots.

-- name: last
SELECT boot_id FROM tidemill.boots;

-- name: first
INSERT INTO tidemill.boots (boot_id) VALUES ($1);

-- name: next
UPDATE tidemill.boots SET boot_id = $1;

-- name: end_leases
UPDATE tidemill.jobs SET lease = 0 WHERE state = 'running';

-- name: end_claims
UPDATE tidemill.claims SET lease = 0;

-- name: end_workers
UPDATE tidemill.workers SET lease = 0;

-- name: end_leaders
UPDATE tidemill.leaders SET lease = 0;

-- name: end_left_units
UPDATE tidemill.left_units SET lease = 0;

-- name: open_lanes
UPDATE tidemill.lanes SET pool = NULL, key = NULL, until = NULL, again = NULL, urgency = NULL, ripe = NULL
WHERE again IS NOT NULL OR ripe IS NOT NULL;

-- name: open_groups
UPDATE tidemill.groups SET pool = NULL, key = NULL, until = NULL, again = NULL, urgency = NULL
WHERE again IS NOT NULL;

-- name: accounts
SELECT pool, key FROM tidemill.accounts;
