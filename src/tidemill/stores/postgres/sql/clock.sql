-- name: read_clock
-- $1 wall, $2 boot, $3 epoch: as for tidemill.read_clock
SELECT wall, boot, epoch FROM tidemill.read_clock($1, $2, $3);

-- name: boot_id
SELECT boot_id FROM tidemill.clock;
