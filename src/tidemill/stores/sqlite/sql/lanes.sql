-- Which lanes are open, and what shuts and opens them.

-- name: wake  (queue, boot) lanes whose wait is over
UPDATE lanes INDEXED BY lanes_shut SET blocked = 0 WHERE blocked = 2 AND queue = ? AND wake <= ?;

-- name: open_groups  (queue, boot) each found by one step in the index, whatever the number of its lanes
WITH RECURSIVE place (grp) AS (
    SELECT min(grp) FROM lanes WHERE blocked = 0 AND queue = ?1
    UNION ALL
    SELECT (SELECT min(lanes.grp) FROM lanes WHERE blocked = 0 AND queue = ?1 AND lanes.grp > place.grp)
    FROM place WHERE grp IS NOT NULL
)
SELECT grp FROM place
WHERE grp IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM blocks
                  WHERE blocks.queue = ?1 AND blocks.grp = place.grp AND again > ?2
                    AND priority <= (SELECT min(lanes.priority) FROM lanes
                                     WHERE blocked = 0 AND lanes.queue = ?1 AND lanes.grp = place.grp));

-- name: open_lanes  (queue, grp, after: priority, served, seq, limit) in the order they are served
SELECT lane, served, priority, seq FROM lanes
WHERE blocked = 0 AND queue = ?1 AND grp = ?2 AND (priority, served, seq) > (?3, ?4, ?5)
ORDER BY priority, served, seq LIMIT ?6;

-- name: full  (queue, lane) at its limit
UPDATE lanes SET blocked = 1 WHERE queue = ? AND lane = ?;

-- name: shut  (wake, waits, lacks, queue, lane)
UPDATE lanes SET blocked = 2, wake = ?, waits = ?, lacks = ? WHERE queue = ? AND lane = ?;

-- name: ripe_at  (queue, lane, waits) when a batch that waited for company has waited enough
SELECT wake FROM lanes WHERE queue = ? AND lane = ? AND waits = ?;

-- name: shut_group  (queue, grp, pool, priority, until, again)
INSERT INTO blocks (queue, grp, pool, priority, until, again) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, grp) DO UPDATE
SET pool = excluded.pool, priority = excluded.priority, until = excluded.until, again = excluded.again;

-- name: open_lanes_of  (pool and key) units came back
UPDATE lanes INDEXED BY lanes_waits SET blocked = 0 WHERE blocked = 2 AND waits = ? RETURNING queue;

-- name: open_lanes_of_pool  (pool) all its keys
UPDATE lanes INDEXED BY lanes_waits SET blocked = 0
WHERE blocked = 2 AND waits >= ?1 || char(31) AND waits < ?1 || char(32) RETURNING queue;

-- name: open_groups_of  (pool)
DELETE FROM blocks WHERE pool = ? RETURNING queue;

-- name: lingers  (queue, waits) whether a batch waits for company
SELECT EXISTS (SELECT 1 FROM lanes INDEXED BY lanes_waits WHERE blocked = 2 AND waits = ?2 AND queue = ?1);

-- name: next_wait  (queue, boot) the soonest end of a wait, of groups that have something ready
SELECT min(until) FROM (
    SELECT min(until) AS until FROM blocks
    WHERE queue = ?1 AND again > ?2
      AND EXISTS (SELECT 1 FROM lanes WHERE blocked = 0 AND lanes.queue = ?1 AND lanes.grp = blocks.grp)
    UNION ALL
    SELECT min(wake) FROM lanes INDEXED BY lanes_shut WHERE blocked = 2 AND queue = ?1
);
