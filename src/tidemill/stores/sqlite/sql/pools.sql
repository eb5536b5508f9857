-- What providers meter: declared by code, overridden by people.

-- name: one  (name)
SELECT declared, override FROM pools WHERE name = ?;

-- name: all
SELECT name, declared, override FROM pools ORDER BY name;

-- name: declare  (name, declared)
INSERT INTO pools (name, declared) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET declared = excluded.declared WHERE declared <> excluded.declared;

-- name: override  (override, name) or NULL: there is none
UPDATE pools SET override = ? WHERE name = ?;
