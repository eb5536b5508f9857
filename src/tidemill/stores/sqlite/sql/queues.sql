-- What is set on queues: declared by code, overridden and paused by people.

-- name: one  (name)
SELECT declared, override, pause FROM queues WHERE name = ?;

-- name: all
SELECT name, declared, override, pause FROM queues ORDER BY name;

-- name: declare  (name, declared)
INSERT INTO queues (name, declared) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET declared = excluded.declared WHERE declared <> excluded.declared;

-- name: appear  (name, declared) a queue nobody declared
INSERT INTO queues (name, declared) VALUES (?, ?) ON CONFLICT (name) DO NOTHING;

-- name: override  (override, name) or NULL: there is none
UPDATE queues SET override = ? WHERE name = ?;

-- name: pause  (pause, name)
UPDATE queues SET pause = ? WHERE name = ?;
