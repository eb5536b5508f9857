-- A request in the caller's transaction, as each library writes parameters: id, task, payload, options.

-- name: numbered
SELECT tidemill.arrive($1, $2, $3, $4);

-- name: positional
SELECT tidemill.arrive(%s, %s, %s, %s);

-- name: named
SELECT tidemill.arrive(:id, :task, :payload, :options);
