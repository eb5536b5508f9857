-- Documents. OFFSET 0 makes the planner find a single document by its key.

-- name: by_id
-- $1 kinds, $2 ids
SELECT {columns} FROM unnest($1::text[], $2::text[]) AS w (wanted_kind, wanted_id)
CROSS JOIN LATERAL (SELECT * FROM tidemill.documents WHERE document_key = w.wanted_kind || ':' || w.wanted_id OFFSET 0) AS document;

-- name: worklist (documents with job changes, then due ones; some are both)
-- $1 wall, $2 boot, $3 epoch, $4 kind, $5 limit, $6 limit of job changes of each, $7 ids, if only these are
-- wanted
WITH clock AS MATERIALIZED (
    SELECT k.wall, k.boot, k.epoch, (
        SELECT min(due) FROM tidemill.documents WHERE kind = $4 AND due > k.wall
    ) AS next_due
    FROM tidemill.read_clock($1, $2, $3) AS k
), waiting AS (
    ({marked}) UNION ALL ({due})
), first AS (
    SELECT DISTINCT ON (waits) waits, is_due, since FROM waiting ORDER BY waits, is_due
), marked AS (
    SELECT waits, is_due, since FROM first ORDER BY is_due, since, waits LIMIT $5
)
SELECT clock.wall, clock.boot, clock.epoch, clock.next_due, {columns}, ends.numbers, ends.jobs, ends.states
FROM clock
LEFT JOIN (
    marked CROSS JOIN LATERAL (
        SELECT * FROM tidemill.documents WHERE document_key = $4 || ':' || waits OFFSET 0
    ) AS document
    CROSS JOIN LATERAL (
        SELECT array_agg(e.number::text ORDER BY e.number) AS numbers, array_agg(e.job ORDER BY e.number) AS jobs,
            array_agg(e.state ORDER BY e.number) AS states
        FROM (
            SELECT s.number, s.job, (
                SELECT (tidemill.visible_job(j)).state FROM tidemill.jobs AS j WHERE j.id = s.job
            ) AS state
            FROM tidemill.worklist AS s WHERE s.kind = $4 AND s.document = waits ORDER BY s.number LIMIT $6
        ) AS e
    ) AS ends
) ON true
ORDER BY is_due, since, id;

-- name: marked (jumps in the index from one document to the next, past all rows of each)
WITH RECURSIVE one (document, number) AS (
    (SELECT document, number FROM tidemill.worklist WHERE kind = $4 ORDER BY document, number LIMIT 1)
    UNION ALL
    SELECT following.document, following.number FROM one CROSS JOIN LATERAL (
        SELECT s.document, s.number FROM tidemill.worklist AS s
        WHERE s.kind = $4 AND s.document > one.document ORDER BY s.document, s.number LIMIT 1
    ) AS following
)
SELECT document AS waits, false AS is_due, number::double precision AS since FROM one ORDER BY number LIMIT $5

-- name: marked_of
SELECT w.id COLLATE "C" AS waits, false AS is_due, min(s.number)::double precision AS since
FROM unnest($7::text[]) AS w (id)
CROSS JOIN LATERAL (SELECT number FROM tidemill.worklist WHERE kind = $4 AND document = w.id OFFSET 0) AS s
GROUP BY w.id ORDER BY min(s.number) LIMIT $5

-- name: due
SELECT id, true, due FROM tidemill.documents
WHERE kind = $4 AND due <= (SELECT wall FROM clock) ORDER BY due, id LIMIT $5

-- name: due_of (by id: the ids are few, the due documents may be many)
SELECT w.id COLLATE "C" AS waits, true, c.due FROM unnest($7::text[]) AS w (id)
CROSS JOIN LATERAL (SELECT due FROM tidemill.documents WHERE document_key = $4 || ':' || w.id OFFSET 0) AS c
WHERE c.due <= (SELECT wall FROM clock) ORDER BY c.due, waits LIMIT $5

-- name: find
-- $1 kind, $2 created and $3 id of the last one, $4 limit
SELECT {columns} FROM tidemill.documents
WHERE kind = $1 AND (created, id) < ($2, $3) {condition} ORDER BY created DESC, id DESC LIMIT $4;

-- name: find_states (a full page of each state: an index has them in order)
-- $5 states
SELECT page.* FROM unnest($5::text[]) AS w (wanted) CROSS JOIN LATERAL (
    SELECT {columns} FROM tidemill.documents
    WHERE kind = $1 AND state = w.wanted AND (created, id) < ($2, $3) {condition}
    ORDER BY created DESC, id DESC LIMIT $4
) AS page ORDER BY created DESC, id DESC LIMIT $4;

-- name: counts
-- $1 kind
SELECT state, count(*) FROM tidemill.documents WHERE kind = $1 GROUP BY state;
