-- Open lanes, and the blocks of lanes and groups.

-- name: unblock_expired  (queue, boot) lanes whose block has ended
UPDATE lanes INDEXED BY lanes_blocked SET blocked = 0 WHERE blocked = 2 AND queue = ? AND wake_at <= ?;

-- name: open_groups  (queue, boot) one index search per group, however many lanes it has
WITH RECURSIVE place (pool_set) AS (
    SELECT min(pool_set) FROM lanes WHERE blocked = 0 AND queue = ?1
    UNION ALL
    SELECT (SELECT min(lanes.pool_set) FROM lanes WHERE blocked = 0 AND queue = ?1 AND lanes.pool_set > place.pool_set)
    FROM place WHERE pool_set IS NOT NULL
)
SELECT pool_set FROM place
WHERE pool_set IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM blocks
                  WHERE blocks.queue = ?1 AND blocks.pool_set = place.pool_set AND retry_at > ?2
                    AND priority <= (SELECT min(lanes.priority) FROM lanes
                                     WHERE blocked = 0 AND lanes.queue = ?1 AND lanes.pool_set = place.pool_set));

-- name: open_lanes  (queue, pool_set, after: priority, served, seq, limit) in the order they are served
SELECT lane, served, priority, seq FROM lanes
WHERE blocked = 0 AND queue = ?1 AND pool_set = ?2 AND (priority, served, seq) > (?3, ?4, ?5)
ORDER BY priority, served, seq LIMIT ?6;

-- name: block_full_lane  (queue, lane) the lane is at its limit
UPDATE lanes SET blocked = 1 WHERE queue = ? AND lane = ?;

-- name: block_lane  (wake_at, waits_for, missing_jobs, queue, lane)
UPDATE lanes SET blocked = 2, wake_at = ?, waits_for = ?, missing_jobs = ? WHERE queue = ? AND lane = ?;

-- name: batch_due_at  (queue, lane, waits_for) when a waiting batch has waited long enough
SELECT wake_at FROM lanes WHERE queue = ? AND lane = ? AND waits_for = ?;

-- name: block_group  (queue, pool_set, pool, priority, until, retry_at)
INSERT INTO blocks (queue, pool_set, pool, priority, until, retry_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, pool_set) DO UPDATE
SET pool = excluded.pool, priority = excluded.priority, until = excluded.until, retry_at = excluded.retry_at;

-- name: unblock_lanes_of  (pool and key) units became free
UPDATE lanes INDEXED BY lanes_waits_for SET blocked = 0 WHERE blocked = 2 AND waits_for = ? RETURNING queue;

-- name: unblock_lanes_of_pool  (pool) for all its keys
UPDATE lanes INDEXED BY lanes_waits_for SET blocked = 0
WHERE blocked = 2 AND waits_for >= ?1 || char(31) AND waits_for < ?1 || char(32) RETURNING queue;

-- name: unblock_groups_of  (pool)
DELETE FROM blocks WHERE pool = ? RETURNING queue;

-- name: has_waiting_batch  (queue, waits_for) true if a batch waits for more jobs
SELECT EXISTS (SELECT 1 FROM lanes INDEXED BY lanes_waits_for WHERE blocked = 2 AND waits_for = ?2 AND queue = ?1);

-- name: next_block_end  (queue, boot) the first end of a block, for groups with ready jobs
SELECT min(until) FROM (
    SELECT min(until) AS until FROM blocks
    WHERE queue = ?1 AND retry_at > ?2
      AND EXISTS (SELECT 1 FROM lanes WHERE blocked = 0 AND lanes.queue = ?1 AND lanes.pool_set = blocks.pool_set)
    UNION ALL
    SELECT min(wake_at) FROM lanes INDEXED BY lanes_blocked WHERE blocked = 2 AND queue = ?1
);
