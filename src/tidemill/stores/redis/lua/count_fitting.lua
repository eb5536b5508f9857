-- Returns how many of the jobs ARGV[2], ARGV[3] …, from the first on, fit into one transaction by record
-- size.
-- uses: keys bulk_commands
local left = MAX_BYTES
for at = 2, #ARGV do
  left = left - redis.call('HSTRLEN', root .. 'jobs', ARGV[at])
  if left < 0 then return math.max(1, at - 2) end
end
return #ARGV - 1
