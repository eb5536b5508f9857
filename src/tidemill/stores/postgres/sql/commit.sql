-- Writes all changes of an engine transaction in one call. The function is in schema/0001-5-engine.sql.

-- name: commit
SELECT tidemill.commit_changes(
    deleted_jobs => $1::text[], new_jobs => $2::json, new_queues => $3::json, plain_lanes => $4::json,
    new_lanes => $5::json, deleted_lanes => $6::json, changed_lanes => $7::json, lane_counts => $8::json,
    saved_blocks => $9::json, deleted_blocks => $10::json, picked => $11::bigint, saved_ids => $12::json,
    admitted => $13::text[]::bigint[], new_workers => $14::json,
    new_checkpoints => $15::json, deleted_checkpoints => $16::json,
    new_attempts => $17::json, attempts_kept => $18::integer, new_logs => $19::json,
    logs_kept => $20::integer, minutes => $21::json, new_pools => $22::json, new_accounts => $23::json,
    ended_claims => $24::json, new_reservations => $25::json, abandoned => $26::json, settled_abandoned => $27::json,
    unconfirmed => $28::json, confirmed => $29::json, pool_minutes => $30::json,
    new_documents => $31::json, deleted_documents => $32::json, new_work => $33::json, done_work => $34::text[]::bigint[]
);

-- name: pool_minutes
-- $1 pools, $2 minutes
SELECT h.pool, h.minute, h.calls, h.units, h.refusals
FROM unnest($1::text[], $2::text[]::double precision[]) AS w (pool, minute)
JOIN tidemill.pool_history AS h ON h.pool = w.pool AND h.minute = w.minute;
