-- Pools: declared by code, overridden by operators.

-- name: by_name  (name)
SELECT declared, override FROM pools WHERE name = ?;

-- name: all
SELECT name, declared, override FROM pools ORDER BY name;

-- name: declare  (name, declared)
INSERT INTO pools (name, declared) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET declared = excluded.declared WHERE declared <> excluded.declared;

-- name: override  (override or NULL, name)
UPDATE pools SET override = ? WHERE name = ?;

-- name: minute  (pool, minute)
SELECT calls, units, refusals FROM pool_history WHERE pool = ? AND minute = ?;

-- name: save_minute  (pool, minute, calls, units, refusals)
INSERT OR REPLACE INTO pool_history (pool, minute, calls, units, refusals) VALUES (?, ?, ?, ?, ?);

-- name: minutes  (pool, minute)
SELECT minute, calls, units, refusals FROM pool_history WHERE pool = ? AND minute >= ? ORDER BY minute;

-- name: delete_minutes  (minute)
DELETE FROM pool_history WHERE pool IN (SELECT name FROM pools) AND minute < ?;
