-- What a step made of its rows, in one call. The function is in schema/0005-steps.sql.

-- name: commit
SELECT tidemill.commit_step(
    gone_jobs => $1::text[], new_jobs => $2::json, new_queues => $3::json, plain_lanes => $4::json,
    new_lanes => $5::json, gone_lanes => $6::json, stirred => $7::json, grown => $8::json,
    marks => $9::json, gone_groups => $10::json, picked => $11::bigint, ids => $12::json,
    admitted => $13::text[]::bigint[], new_workers => $14::json,
    new_checkpoints => $15::json, gone_checkpoints => $16::json,
    new_attempts => $17::json, attempts_kept => $18::integer, new_logs => $19::json,
    logs_kept => $20::integer, minutes => $21::json, new_pools => $22::json, new_accounts => $23::json,
    ended => $24::json, reserved => $25::json, left_to => $26::json, left_by => $27::json,
    silent => $28::json, heard => $29::json, pool_minutes => $30::json,
    new_courses => $31::json, gone_courses => $32::json, new_stirs => $33::json, taken => $34::text[]::bigint[]
);

-- name: pool_minutes
-- $1 pools, $2 minutes
SELECT h.pool, h.minute, h.calls, h.units, h.refusals
FROM unnest($1::text[], $2::text[]::double precision[]) AS w (pool, minute)
JOIN tidemill.pool_history AS h ON h.pool = w.pool AND h.minute = w.minute;
