-- What is kept of jobs beside their records.
--   ARGV[2]…  their ids
-- Answers for each {attempts, lines, steps}, the lines attempt by attempt.
-- uses: root
local function lines_of(id)
  local found = {}
  for _, attempt in ipairs(redis.call('SMEMBERS', root .. 'logs:' .. id)) do
    for _, line in ipairs(redis.call('LRANGE', root .. 'lines:' .. attempt .. ':' .. id, 0, -1)) do
      found[#found + 1] = line
    end
  end
  return found
end

local found = {}
for at = 2, #ARGV do
  found[#found + 1] = {
    redis.call('LRANGE', root .. 'attempts:' .. ARGV[at], 0, -1),
    lines_of(ARGV[at]),
    redis.call('HVALS', root .. 'steps:' .. ARGV[at]),
  }
end
return found
