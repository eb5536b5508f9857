-- The jobs with the ids ARGV[2], ARGV[3] …
-- Answers for each, as far as it came, its record, '' for none, and the lease it has by now, '' when it is not
-- running. Large ones are given a few at a time.
-- uses: root records leases
local BYTES = 4 * 1024 * 1024

local found, bytes = {}, 0
for at = 2, #ARGV do
  if bytes >= BYTES then return found end
  local record = redis.call('HGET', root .. 'jobs', ARGV[at]) or ''
  found[#found + 1] = record
  found[#found + 1] = lease_of(ARGV[at], record)
  bytes = bytes + #record
end
return found
