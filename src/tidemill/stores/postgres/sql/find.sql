-- Jobs by filter. `find.py` puts a statement together from these pieces. What is asked here about texts and
-- fields may say yes too often, never too seldom: whoever reads the rows asks `core.matching.matches` once
-- more.

-- name: rows
SELECT {columns} FROM (
    SELECT j AS job FROM tidemill.jobs AS j WHERE {meant} AND {states} {order} LIMIT {portion}
) AS page CROSS JOIN LATERAL tidemill.shown(page.job) {order};

-- name: running_rows (the rows of jobs in folded claims say that they are ready)
SELECT {columns} FROM (
    (SELECT {columns} FROM tidemill.jobs WHERE {meant} AND {states} {order} LIMIT {portion})
    UNION ALL
    (SELECT {columns} FROM tidemill.folded WHERE {meant} {order} LIMIT {portion})
) AS page {order} LIMIT {portion};

-- name: newest_first
ORDER BY seq DESC

-- name: oldest_first
ORDER BY seq

-- name: before
seq < {}

-- name: behind
seq > {}

-- name: ids
id = ANY({}::text[])

-- name: id_prefix
(id >= {0} AND id <= {0} || repeat(chr(1114111), 200))

-- name: queue
queue = {}

-- name: task
task = {}

-- name: key (a lane is its key, or begins with it where there are pools)
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

-- name: text (a payload with escapes may spell the text in another way; only A to Z have two cases here)
(strpos(lower(payload COLLATE "C"), {quoted}) > 0 OR strpos(lower(task COLLATE "C"), {plain}) > 0
 OR strpos(lower(lane COLLATE "C"), {plain}) > 0 OR strpos(lower(tags COLLATE "C"), {quoted}) > 0
 OR strpos(lower(note COLLATE "C"), {plain}) > 0 OR strpos(lower(reason COLLATE "C"), {plain}) > 0
 OR strpos(lower(error COLLATE "C"), {quoted}) > 0 OR strpos(payload, '\u') > 0 OR strpos(payload, '\/') > 0)

-- name: field (what a payload has in it if it has the field)
(strpos(payload, {}) > 0 OR strpos(payload, '\u') > 0 OR strpos(payload, '\/') > 0)
