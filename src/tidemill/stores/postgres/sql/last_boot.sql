-- Ends everything that uses the boot clock after a reboot.

-- name: last
SELECT boot_id FROM tidemill.last_boot;

-- name: first
INSERT INTO tidemill.last_boot (boot_id) VALUES ($1);

-- name: next
UPDATE tidemill.last_boot SET boot_id = $1;

-- name: end_leases
UPDATE tidemill.jobs SET lease = 0 WHERE state = 'running';

-- name: end_claims
UPDATE tidemill.claims SET lease = 0;

-- name: end_workers
UPDATE tidemill.workers SET lease = 0;

-- name: end_leaders
UPDATE tidemill.leaders SET lease = 0;

-- name: end_abandoned_units
UPDATE tidemill.abandoned_units SET lease = 0;

-- name: open_lanes
UPDATE tidemill.lanes SET pool = NULL, key = NULL, until = NULL, retry_at = NULL, blocked_priority = NULL, batch_due_at = NULL
WHERE retry_at IS NOT NULL OR batch_due_at IS NOT NULL;

-- name: open_blocks
UPDATE tidemill.blocks SET pool = NULL, key = NULL, until = NULL, retry_at = NULL, blocked_priority = NULL
WHERE retry_at IS NOT NULL;

-- name: accounts
SELECT pool, key FROM tidemill.accounts;
