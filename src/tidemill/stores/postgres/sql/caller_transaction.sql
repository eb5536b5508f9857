-- Inserts an arrival in the caller's transaction, with the parameter style of each library.

-- name: numbered
SELECT tidemill.insert_arrival($1, $2, $3, $4);

-- name: positional
SELECT tidemill.insert_arrival(%s, %s, %s, %s);

-- name: named
SELECT tidemill.insert_arrival(:id, :task, :payload, :options);
