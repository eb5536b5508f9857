-- The log lines of a job, attempt by attempt.
--   ARGV[2]  its id
-- uses: root
local found = {}
for _, attempt in ipairs(redis.call('SMEMBERS', root .. 'logs:' .. ARGV[2])) do
  for _, line in ipairs(redis.call('LRANGE', root .. 'lines:' .. attempt .. ':' .. ARGV[2], 0, -1)) do
    found[#found + 1] = line
  end
end
return found
