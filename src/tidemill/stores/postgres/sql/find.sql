-- Finds jobs by filter. `find.py` builds a statement from these parts. A condition on texts and fields may
-- match too often, never too rarely: `core.filters.matches_filter` checks each row again.

-- name: rows
SELECT {columns} FROM (
    SELECT j AS job FROM tidemill.jobs AS j WHERE {condition} AND {states} {order} LIMIT {portion}
) AS page CROSS JOIN LATERAL tidemill.visible_job(page.job) {order};

-- name: running_rows (the rows of jobs in bulk claims still say 'ready')
SELECT {columns} FROM (
    (SELECT {columns} FROM tidemill.jobs WHERE {condition} AND {states} {order} LIMIT {portion})
    UNION ALL
    (SELECT {columns} FROM tidemill.bulk_claimed WHERE {condition} {order} LIMIT {portion})
) AS page {order} LIMIT {portion};

-- name: newest_first
ORDER BY seq DESC

-- name: oldest_first
ORDER BY seq

-- name: before
seq < {}

-- name: after
seq > {}

-- name: ids
id = ANY({}::text[])

-- name: id_prefix
(id >= {0} AND id <= {0} || repeat(chr(1114111), 200))

-- name: queue
queue = {}

-- name: task
task = {}

-- name: key (a lane is its key, or starts with it if there are pools)
(lane = {0} OR left(lane, length({0}) + 1) = {0} || chr(31))

-- name: flow
flow = {}

-- name: tag
strpos(tags, {}) > 0

-- name: created_since
created >= {}

-- name: created_until
created < {}

-- name: due_since
due >= {}

-- name: due_until
due < {}

-- name: finished_since
finished >= {}

-- name: finished_until
finished < {}

-- name: text (a payload with escapes may spell the text differently; only A to Z have two cases here)
(strpos(lower(payload COLLATE "C"), {quoted}) > 0 OR strpos(lower(task COLLATE "C"), {plain}) > 0
 OR strpos(lower(lane COLLATE "C"), {plain}) > 0 OR strpos(lower(tags COLLATE "C"), {quoted}) > 0
 OR strpos(lower(note COLLATE "C"), {plain}) > 0 OR strpos(lower(reason COLLATE "C"), {plain}) > 0
 OR strpos(lower(error COLLATE "C"), {quoted}) > 0 OR strpos(payload, '\u') > 0 OR strpos(payload, '\/') > 0)

-- name: field (a text that the payload contains if it has the field)
(strpos(payload, {}) > 0 OR strpos(payload, '\u') > 0 OR strpos(payload, '\/') > 0)
