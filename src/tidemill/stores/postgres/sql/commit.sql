-- What a step made of its rows, in one call. The function is in schema/0004-steps.sql.

-- name: commit
SELECT tidemill.commit_step(
    gone_jobs => $1::text[], new_jobs => $2::json, new_queues => $3::json, plain_lanes => $4::json,
    new_lanes => $5::json, gone_lanes => $6::json, stirred => $7::json, grown => $8::json,
    marks => $9::json, gone_groups => $10::json, picked => $11::bigint, ids => $12::json,
    admitted => $13::bigint[], new_workers => $14::json, new_leaders => $15::json,
    resigned => $16::text[], new_checkpoints => $17::json, gone_checkpoints => $18::json,
    new_attempts => $19::json, attempts_kept => $20::integer, new_logs => $21::json,
    logs_kept => $22::integer, minutes => $23::json, new_pools => $24::json, new_accounts => $25::json,
    ended => $26::json, reserved => $27::json, left_to => $28::json, left_by => $29::json,
    silent => $30::json, heard => $31::json, pool_minutes => $32::json
);

-- name: pool_minutes
-- $1 pools, $2 minutes
SELECT h.pool, h.minute, h.calls, h.units, h.refusals
FROM unnest($1::text[], $2::double precision[]) AS w (pool, minute)
JOIN tidemill.pool_history AS h ON h.pool = w.pool AND h.minute = w.minute;
