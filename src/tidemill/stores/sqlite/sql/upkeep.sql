-- Whether the tables agree with each other.

-- name: recount
SELECT queue, state, count(*) FROM jobs GROUP BY queue, state;

-- name: lost_lanes  lanes with ready jobs that no claim would find
SELECT DISTINCT queue, lane FROM jobs
WHERE state = 'ready' AND NOT EXISTS (SELECT 1 FROM lanes WHERE lanes.queue = jobs.queue AND lanes.lane = jobs.lane);

-- name: wrong_heads  lanes whose head is not their first ready job, or that have none
SELECT queue, lane FROM lanes
WHERE (priority, due, seq) IS NOT (SELECT priority, due, seq FROM jobs
                                   WHERE state = 'ready' AND jobs.queue = lanes.queue AND jobs.lane = lanes.lane
                                   ORDER BY priority, due, seq LIMIT 1);
