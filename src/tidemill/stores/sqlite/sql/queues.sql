-- Settings of queues: declared by code, overridden and paused by operators.

-- name: by_name  (name)
SELECT declared, override, pause FROM queues WHERE name = ?;

-- name: all
SELECT name, declared, override, pause FROM queues ORDER BY name;

-- name: declare  (name, declared)
INSERT INTO queues (name, declared) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET declared = excluded.declared WHERE declared <> excluded.declared;

-- name: add_if_missing  (name, declared) a queue that no code declared
INSERT INTO queues (name, declared) VALUES (?, ?) ON CONFLICT (name) DO NOTHING;

-- name: override  (override or NULL, name)
UPDATE queues SET override = ? WHERE name = ?;

-- name: pause  (pause, name)
UPDATE queues SET pause = ? WHERE name = ?;
