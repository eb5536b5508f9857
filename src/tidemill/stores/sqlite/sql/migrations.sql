-- Checks of a file before it is used.

-- name: owner  schema version, application id, number of tables; one statement, so all are from one snapshot
SELECT
    (SELECT user_version FROM pragma_user_version),
    (SELECT application_id FROM pragma_application_id),
    (SELECT count(*) FROM sqlite_schema);
