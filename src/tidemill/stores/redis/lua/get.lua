-- Reads the jobs with the ids ARGV[2], ARGV[3] … Returns record ('' if missing) and current lease ('' if not
-- running) per job. With large records the reply stops early.
-- uses: keys job_record leases
local MAX_BYTES = 4 * 1024 * 1024

local found, bytes = {}, 0
for at = 2, #ARGV do
  if bytes >= MAX_BYTES then return found end
  local record = redis.call('HGET', root .. 'jobs', ARGV[at]) or ''
  found[#found + 1] = record
  found[#found + 1] = lease_of(ARGV[at], record)
  bytes = bytes + #record
end
return found
