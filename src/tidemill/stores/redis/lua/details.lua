-- Reads attempts, log lines and checkpoints of jobs.
--   ARGV[2]…  ids
-- Returns {attempts, lines, checkpoints} per job. Results of steps can be large, so the reply may stop early.
-- uses: keys
local MAX_BYTES = 4 * 1024 * 1024

local function lines_of(id)
  local found = {}
  for _, attempt in ipairs(redis.call('SMEMBERS', root .. 'logs:' .. id)) do
    for _, line in ipairs(redis.call('LRANGE', root .. 'log_lines:' .. attempt .. ':' .. id, 0, -1)) do
      found[#found + 1] = line
    end
  end
  return found
end

local found, bytes = {}, 0
for at = 2, #ARGV do
  if bytes >= MAX_BYTES then return found end
  local its = {
    redis.call('LRANGE', root .. 'attempts:' .. ARGV[at], 0, -1),
    lines_of(ARGV[at]),
    redis.call('HVALS', root .. 'checkpoints:' .. ARGV[at]),
  }
  for _, texts in ipairs(its) do
    for _, text in ipairs(texts) do bytes = bytes + #text end
  end
  found[#found + 1] = its
end
return found
