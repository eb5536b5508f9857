-- The hot path. The functions are in schema/0003-plain.sql.

-- name: insert
SELECT tidemill.insert_plain($1, $2, $3, $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::integer[],
    $10::double precision[], $11::double precision[], $12::double precision[], $13::double precision[],
    $14::text[], $15::text[]);

-- name: claim
SELECT * FROM tidemill.claim_plain($1, $2, $3, $4, $5, $6::text[], $7::integer[], $8, $9, $10);

-- name: settle
SELECT left_over, rung FROM tidemill.settle_plain(
    $1, $2, $3, $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[],
    $11::double precision[], $12::integer[]);

-- name: settle_and_claim (nothing is claimed before everything is settled)
SELECT s.left_over, s.rung, c.*
FROM tidemill.settle_plain(
    $1, $2, $3, $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[],
    $11::double precision[], $12::integer[]) AS s
CROSS JOIN LATERAL tidemill.claim_plain(
    $1, $2, $3, CASE WHEN s.left_over = '{}' THEN $13::text END, $14, $15::text[], $16::integer[], $17, $18, $19
) AS c;

-- name: extend
SELECT plain, current FROM tidemill.extend_plain(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text[], $12::bigint[], $13::bigint[], $14::boolean[],
    $15::double precision[], $16::text[], $17::text[], $18::double precision[], $19::text[]);
