-- Those of some jobs that may be meant.
--   ARGV[2]  how many ids follow
--   ARGV[3]  … the ids, and behind them what is wanted (parts/sieve.lua)
-- Answers how many were looked at; then of each that was found its id, its record and its lease. Large ones are
-- looked at a few at a time.
-- uses: root records leases sieve
local BYTES = 2 * 1024 * 1024

local last = 2 + tonumber(ARGV[2])
local is_wanted = sieve(last + 1)
local found, bytes = { 0 }, 0
for at = 3, last do
  local record = redis.call('HGET', root .. 'jobs', ARGV[at])
  if record then
    bytes = bytes + #record
    if is_wanted(record) then
      found[#found + 1], found[#found + 2], found[#found + 3] = ARGV[at], record, lease_of(ARGV[at], record)
    end
  end
  found[1] = at - 2
  if bytes >= BYTES then return found end
end
return found
