-- Documents: flows, schedules and records.

-- name: by_id  (kind, carray of ids)
SELECT kind, id, name, state, created, revision, record, due, finished, until
FROM documents WHERE kind = ? AND id IN carray(?);

-- name: save  (kind, id, name, state, created, revision, record, due, finished, until)
INSERT INTO documents (kind, id, name, state, created, revision, record, due, finished, until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (kind, id) DO UPDATE
SET name = excluded.name, state = excluded.state, revision = excluded.revision, record = excluded.record,
    due = excluded.due, finished = excluded.finished, until = excluded.until;

-- name: save_progress  (revision, record, due, kind, id) same state: writes fewer index entries
UPDATE documents SET revision = ?, record = ?, due = ? WHERE kind = ? AND id = ?;

-- name: forget  (kind, id)
DELETE FROM documents WHERE kind = ? AND id = ?;

-- name: delete_work  (kind, document)
DELETE FROM worklist WHERE kind = ? AND document = ?;

-- name: take  (carray of numbers)
DELETE FROM worklist WHERE number IN carray(?);

-- name: marked  (kind, limit) longest waiting first; jumps in the index from one document to the next
WITH RECURSIVE one (document) AS (
    SELECT min(document) FROM worklist WHERE kind = ?1
    UNION ALL
    SELECT (SELECT min(document) FROM worklist WHERE kind = ?1 AND document > one.document) FROM one WHERE one.document IS NOT NULL
)
SELECT document FROM one WHERE document IS NOT NULL
ORDER BY (SELECT min(number) FROM worklist WHERE kind = ?1 AND worklist.document = one.document) LIMIT ?2;

-- name: marked_of  (kind, carray of ids, limit)
SELECT document FROM worklist WHERE kind = ? AND document IN carray(?) GROUP BY document ORDER BY min(number) LIMIT ?;

-- name: job_changes  (kind, document, limit)
SELECT number, job, (SELECT state FROM jobs WHERE jobs.id = worklist.job)
FROM worklist WHERE kind = ? AND document = ? ORDER BY number LIMIT ?;

-- name: due  (kind, now, limit)
SELECT id FROM documents WHERE kind = ? AND due <= ? ORDER BY due, id LIMIT ?;

-- name: due_of  (kind, carray of ids, now) by id: the ids are few, the due documents may be many
SELECT id FROM documents INDEXED BY documents_id WHERE kind = ? AND id IN carray(?) AND due <= ? ORDER BY due, id;

-- name: next_due  (kind, now)
SELECT min(due) FROM documents WHERE kind = ? AND due > ?;

-- name: counts  (kind)
SELECT state, count(*) FROM documents INDEXED BY documents_state WHERE kind = ? GROUP BY state;

-- name: find  (kind, created, id, limit) newest first, after the given one
SELECT kind, id, name, state, created, revision, record, due, finished, until FROM documents
WHERE kind = ? AND (created, id) < (?, ?) ORDER BY created DESC, id DESC LIMIT ?;

-- name: find_name  (kind, created, id, limit, name)
SELECT kind, id, name, state, created, revision, record, due, finished, until FROM documents
WHERE kind = ?1 AND name = ?5 AND (created, id) < (?2, ?3) ORDER BY created DESC, id DESC LIMIT ?4;

-- name: find_state  (kind, created, id, limit, state, name or null)
SELECT kind, id, name, state, created, revision, record, due, finished, until FROM documents INDEXED BY documents_state
WHERE kind = ?1 AND state = ?5 AND (created, id) < (?2, ?3) AND name = coalesce(?6, name)
ORDER BY created DESC, id DESC LIMIT ?4;
