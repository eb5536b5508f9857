-- Returns the jobs of a list that may match a filter.
--   ARGV[2]  number of ids
--   ARGV[3]…  the ids, then the filter (parts/record_filter.lua)
-- Returns the number of examined jobs; then id, record and lease per match. Large records are examined a few
-- at a time.
-- uses: keys job_record leases record_filter
local MAX_BYTES = 2 * 1024 * 1024

local last = 2 + tonumber(ARGV[2])
local may_match = record_filter(last + 1)
local found, bytes = { 0 }, 0
for at = 3, last do
  local record = redis.call('HGET', root .. 'jobs', ARGV[at])
  if record then
    bytes = bytes + #record
    if may_match(record) then
      found[#found + 1], found[#found + 2], found[#found + 3] = ARGV[at], record, lease_of(ARGV[at], record)
    end
  end
  found[1] = at - 2
  if bytes >= MAX_BYTES then return found end
end
return found
