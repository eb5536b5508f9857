-- How many of the jobs ARGV[2], ARGV[3] …, from the first on, one step may take on by the size of their records.
-- uses: root many
local left = BYTES
for at = 2, #ARGV do
  left = left - redis.call('HSTRLEN', root .. 'jobs', ARGV[at])
  if left < 0 then return math.max(1, at - 2) end
end
return #ARGV - 1
