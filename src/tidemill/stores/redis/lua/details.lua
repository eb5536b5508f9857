-- What is kept of jobs beside their records.
--   ARGV[2]…  their ids
-- Answers for each, as far as it came, {attempts, lines, steps}, the lines attempt by attempt. Results of steps may be
-- large: then a few are given at a time.
-- uses: root
local BYTES = 4 * 1024 * 1024

local function lines_of(id)
  local found = {}
  for _, attempt in ipairs(redis.call('SMEMBERS', root .. 'logs:' .. id)) do
    for _, line in ipairs(redis.call('LRANGE', root .. 'lines:' .. attempt .. ':' .. id, 0, -1)) do
      found[#found + 1] = line
    end
  end
  return found
end

local found, bytes = {}, 0
for at = 2, #ARGV do
  if bytes >= BYTES then return found end
  local its = {
    redis.call('LRANGE', root .. 'attempts:' .. ARGV[at], 0, -1),
    lines_of(ARGV[at]),
    redis.call('HVALS', root .. 'steps:' .. ARGV[at]),
  }
  for _, texts in ipairs(its) do
    for _, text in ipairs(texts) do bytes = bytes + #text end
  end
  found[#found + 1] = its
end
return found
