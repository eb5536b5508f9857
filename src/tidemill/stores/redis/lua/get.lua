-- The jobs with the ids ARGV[2], ARGV[3] …
-- Answers for each its record, '' for none, and the lease it has by now, '' when it is not running.
-- uses: root records leases
local found = {}
for at = 2, #ARGV do
  local record = redis.call('HGET', root .. 'jobs', ARGV[at])
  found[#found + 1] = record or ''
  found[#found + 1] = record and lease_of(ARGV[at], record) or ''
end
return found
