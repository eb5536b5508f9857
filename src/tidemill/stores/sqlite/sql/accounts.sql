-- What is known of pools and their keys.

-- name: one  (pool, key)
SELECT account FROM accounts WHERE pool = ? AND key = ?;

-- name: all
SELECT pool, key FROM accounts ORDER BY pool, key;

-- name: of_pool  (pool)
SELECT key, account FROM accounts WHERE pool = ? ORDER BY key;

-- name: keys  (pool)
SELECT key FROM accounts WHERE pool = ?;

-- name: save  (pool, key, looked, account)
INSERT INTO accounts (pool, key, looked, account) VALUES (?, ?, ?, ?)
ON CONFLICT (pool, key) DO UPDATE SET looked = excluded.looked, account = excluded.account;

-- name: longest_unseen  (looked, limit) keys that nobody has used since
SELECT pool, key FROM accounts WHERE key <> '' AND looked < ? ORDER BY looked, pool, key LIMIT ?;

-- name: look  (looked, pool, key)
UPDATE accounts SET looked = ? WHERE pool = ? AND key = ?;

-- name: forget  (pool, key)
DELETE FROM accounts WHERE pool = ? AND key = ?;
