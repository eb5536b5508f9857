-- Lone jobs on their way in.

-- name: append  (id, queue, task, payload, priority, lane, now, expires, timeout, trace, tags)
-- Does nothing for an id that is remembered, or a queue nobody has seen or with a length limit.
INSERT INTO inbox (id, queue, task, payload, priority, lane, created, expires, timeout, trace, tags)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11
WHERE EXISTS (SELECT 1 FROM queues WHERE name = ?2 AND max_length IS NULL)
  AND NOT EXISTS (SELECT 1 FROM remembered WHERE id = ?1);

-- name: anything
SELECT EXISTS (SELECT 1 FROM inbox);

-- name: all  as `insert.sql: add_plain` takes them
SELECT id, queue, task, payload, 'ready', priority, lane, created, created, expires, timeout, trace, tags
FROM inbox ORDER BY seq;

-- name: empty
DELETE FROM inbox;
