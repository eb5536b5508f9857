-- Accounts of pools and their keys.

-- name: by_key  (pool, key)
SELECT account FROM accounts WHERE pool = ? AND key = ?;

-- name: all
SELECT pool, key FROM accounts ORDER BY pool, key;

-- name: of_pool  (pool)
SELECT key, account FROM accounts WHERE pool = ? ORDER BY key;

-- name: keys  (pool)
SELECT key FROM accounts WHERE pool = ?;

-- name: save  (pool, key, last_seen, account)
INSERT INTO accounts (pool, key, last_seen, account) VALUES (?, ?, ?, ?)
ON CONFLICT (pool, key) DO UPDATE SET last_seen = excluded.last_seen, account = excluded.account;

-- name: unused_accounts  (last_seen, limit) keys not used since then
SELECT pool, key FROM accounts WHERE key <> '' AND last_seen < ? ORDER BY last_seen, pool, key LIMIT ?;

-- name: touch  (last_seen, pool, key)
UPDATE accounts SET last_seen = ? WHERE pool = ? AND key = ?;

-- name: delete  (pool, key)
DELETE FROM accounts WHERE pool = ? AND key = ?;
