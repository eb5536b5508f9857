-- Inbox: single jobs that are accepted but not yet in the table of jobs.

-- name: append  (id, queue, task, payload, priority, lane, now, expires, timeout, trace, tags)
-- Appends nothing for a known id, an unknown queue, or a queue that may have a length limit.
INSERT INTO inbox (id, queue, task, payload, priority, lane, created, expires, timeout, trace, tags)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11
WHERE EXISTS (SELECT 1 FROM queues WHERE name = ?2 AND NOT limited)
  AND NOT EXISTS (SELECT 1 FROM known_ids WHERE id = ?1);

-- name: has_rows
SELECT EXISTS (SELECT 1 FROM inbox);

-- name: has_duplicates  true if an id is there twice or has a job already
SELECT (SELECT count(*) > count(DISTINCT id) FROM inbox)
    OR EXISTS (SELECT 1 FROM inbox WHERE id IN (SELECT id FROM jobs));

-- name: per_lane
SELECT queue, lane, count(*) FROM inbox GROUP BY queue, lane;

-- name: move  (the seq before the first) the inbox is numbered from 1 without gaps
INSERT INTO jobs (seq, id, queue, task, payload, state, priority, lane, created, due, expires, timeout, trace, tags)
SELECT ? + seq, id, queue, task, payload, 'ready', priority, lane, created, created, expires, timeout, trace, tags
FROM inbox ORDER BY seq;

-- name: all  as `insert.sql: add_plain` expects them
SELECT id, queue, task, payload, 'ready', priority, lane, created, created, expires, timeout, trace, tags,
       NULL, NULL, NULL, NULL, NULL, 0
FROM inbox ORDER BY seq;

-- name: empty
DELETE FROM inbox;
