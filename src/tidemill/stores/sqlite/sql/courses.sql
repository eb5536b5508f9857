-- Flows and schedules.

-- name: by_id  (kind, carray of ids)
SELECT kind, id, name, state, created, revision, record, due, finished, until
FROM courses WHERE kind = ? AND id IN carray(?);

-- name: save  (kind, id, name, state, created, revision, record, due, finished, until)
INSERT INTO courses (kind, id, name, state, created, revision, record, due, finished, until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (kind, id) DO UPDATE
SET name = excluded.name, state = excluded.state, revision = excluded.revision, record = excluded.record,
    due = excluded.due, finished = excluded.finished, until = excluded.until;

-- name: go_on  (revision, record, due, kind, id) one that stays in its state: who writes it pays for every index of it
UPDATE courses SET revision = ?, record = ?, due = ? WHERE kind = ? AND id = ?;

-- name: forget  (kind, id)
DELETE FROM courses WHERE kind = ? AND id = ?;

-- name: forget_stirs  (kind, course)
DELETE FROM stirs WHERE kind = ? AND course = ?;

-- name: take  (carray of numbers)
DELETE FROM stirs WHERE number IN carray(?);

-- name: stirred  (kind, limit) the longest waiting first; from one to the next in the index, past however many stirs each has
WITH RECURSIVE one (course) AS (
    SELECT min(course) FROM stirs WHERE kind = ?1
    UNION ALL
    SELECT (SELECT min(course) FROM stirs WHERE kind = ?1 AND course > one.course) FROM one WHERE one.course IS NOT NULL
)
SELECT course FROM one WHERE course IS NOT NULL
ORDER BY (SELECT min(number) FROM stirs WHERE kind = ?1 AND stirs.course = one.course) LIMIT ?2;

-- name: stirred_of  (kind, carray of ids, limit)
SELECT course FROM stirs WHERE kind = ? AND course IN carray(?) GROUP BY course ORDER BY min(number) LIMIT ?;

-- name: ends  (kind, course, limit)
SELECT number, job, (SELECT state FROM jobs WHERE jobs.id = stirs.job)
FROM stirs WHERE kind = ? AND course = ? ORDER BY number LIMIT ?;

-- name: due  (kind, now, limit)
SELECT id FROM courses WHERE kind = ? AND due <= ? ORDER BY due, id LIMIT ?;

-- name: due_of  (kind, carray of ids, now) the ids are few, whoever is due may not be
SELECT id FROM courses INDEXED BY courses_id WHERE kind = ? AND id IN carray(?) AND due <= ? ORDER BY due, id;

-- name: next_due  (kind, now)
SELECT min(due) FROM courses WHERE kind = ? AND due > ?;

-- name: counts  (kind)
SELECT state, count(*) FROM courses INDEXED BY courses_state WHERE kind = ? GROUP BY state;

-- name: find  (kind, created, id, limit) newest first, from behind that one on
SELECT kind, id, name, state, created, revision, record, due, finished, until FROM courses
WHERE kind = ? AND (created, id) < (?, ?) ORDER BY created DESC, id DESC LIMIT ?;

-- name: find_name  (kind, created, id, limit, name)
SELECT kind, id, name, state, created, revision, record, due, finished, until FROM courses
WHERE kind = ?1 AND name = ?5 AND (created, id) < (?2, ?3) ORDER BY created DESC, id DESC LIMIT ?4;

-- name: find_state  (kind, created, id, limit, state, name or null)
SELECT kind, id, name, state, created, revision, record, due, finished, until FROM courses INDEXED BY courses_state
WHERE kind = ?1 AND state = ?5 AND (created, id) < (?2, ?3) AND name = coalesce(?6, name)
ORDER BY created DESC, id DESC LIMIT ?4;
