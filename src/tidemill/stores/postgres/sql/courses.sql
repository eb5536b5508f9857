-- Flows and schedules. One that is named is looked up by its id, whatever the server believes (OFFSET 0).

-- name: by_id
-- $1 kinds, $2 ids
SELECT {columns} FROM unnest($1::text[], $2::text[]) AS w (of_kind, its_id)
CROSS JOIN LATERAL (SELECT * FROM tidemill.courses WHERE named = w.of_kind || ':' || w.its_id OFFSET 0) AS course;

-- name: agenda (those with ends, then those that are due; some are both)
-- $1 wall, $2 boot, $3 epoch, $4 kind, $5 how many, $6 how many ends of each, $7 ids if only these are meant
WITH clock AS MATERIALIZED (
    SELECT k.wall, k.boot, k.epoch, (
        SELECT min(due) FROM tidemill.courses WHERE kind = $4 AND due > k.wall
    ) AS next_due
    FROM tidemill.read_clock($1, $2, $3) AS k
), waiting AS (
    ({stirred}) UNION ALL ({due})
), first AS (
    SELECT DISTINCT ON (waits) waits, is_due, since FROM waiting ORDER BY waits, is_due
), stirred AS (
    SELECT waits, is_due, since FROM first ORDER BY is_due, since, waits LIMIT $5
)
SELECT clock.wall, clock.boot, clock.epoch, clock.next_due, {columns}, ends.numbers, ends.jobs, ends.states
FROM clock
LEFT JOIN (
    stirred CROSS JOIN LATERAL (
        SELECT * FROM tidemill.courses WHERE named = $4 || ':' || waits OFFSET 0
    ) AS course
    CROSS JOIN LATERAL (
        SELECT array_agg(e.number ORDER BY e.number) AS numbers, array_agg(e.job ORDER BY e.number) AS jobs,
            array_agg(e.state ORDER BY e.number) AS states
        FROM (
            SELECT s.number, s.job, (
                SELECT (tidemill.shown(j)).state FROM tidemill.jobs AS j WHERE j.id = s.job
            ) AS state
            FROM tidemill.stirs AS s WHERE s.kind = $4 AND s.course = waits ORDER BY s.number LIMIT $6
        ) AS e
    ) AS ends
) ON true
ORDER BY is_due, since, id;

-- name: stirred (from one course to the next in the index, past however many stirs each has)
WITH RECURSIVE one (course, number) AS (
    (SELECT course, number FROM tidemill.stirs WHERE kind = $4 ORDER BY course, number LIMIT 1)
    UNION ALL
    SELECT following.course, following.number FROM one CROSS JOIN LATERAL (
        SELECT s.course, s.number FROM tidemill.stirs AS s
        WHERE s.kind = $4 AND s.course > one.course ORDER BY s.course, s.number LIMIT 1
    ) AS following
)
SELECT course AS waits, false AS is_due, number::double precision AS since FROM one ORDER BY number LIMIT $5

-- name: stirred_of
SELECT w.id COLLATE "C" AS waits, false AS is_due, min(s.number)::double precision AS since
FROM unnest($7::text[]) AS w (id)
CROSS JOIN LATERAL (SELECT number FROM tidemill.stirs WHERE kind = $4 AND course = w.id OFFSET 0) AS s
GROUP BY w.id ORDER BY min(s.number) LIMIT $5

-- name: due
SELECT id, true, due FROM tidemill.courses
WHERE kind = $4 AND due <= (SELECT wall FROM clock) ORDER BY due, id LIMIT $5

-- name: due_of (the ids are few, whoever is due may not be)
SELECT w.id COLLATE "C" AS waits, true, c.due FROM unnest($7::text[]) AS w (id)
CROSS JOIN LATERAL (SELECT due FROM tidemill.courses WHERE named = $4 || ':' || w.id OFFSET 0) AS c
WHERE c.due <= (SELECT wall FROM clock) ORDER BY c.due, waits LIMIT $5

-- name: find
-- $1 kind, $2 created and $3 id of the last one, $4 how many
SELECT {columns} FROM tidemill.courses
WHERE kind = $1 AND (created, id) < ($2, $3) {meant} ORDER BY created DESC, id DESC LIMIT $4;

-- name: find_states (of each state as many as may be on the page: an index has them in their order)
-- $5 states
SELECT page.* FROM unnest($5::text[]) AS w (wanted) CROSS JOIN LATERAL (
    SELECT {columns} FROM tidemill.courses
    WHERE kind = $1 AND state = w.wanted AND (created, id) < ($2, $3) {meant}
    ORDER BY created DESC, id DESC LIMIT $4
) AS page ORDER BY created DESC, id DESC LIMIT $4;

-- name: counts
-- $1 kind
SELECT state, count(*) FROM tidemill.courses WHERE kind = $1 GROUP BY state;
