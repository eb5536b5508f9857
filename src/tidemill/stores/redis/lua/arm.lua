-- A listener begins to wait.
--   ARGV[2]   its handle
--   ARGV[3]   its number there
--   ARGV[4]…  its topics
-- What a killed process leaves behind goes by itself after an hour; who waits arms anew long before.
-- uses: full
local KEPT = 3600

local time = redis.call('TIME')
local now = time[1] .. '.' .. string.format('%06d', time[2])
local member = ARGV[2] .. '/' .. ARGV[3]
for at = 4, #ARGV do
  local parked = root .. 'parked:' .. ARGV[at]
  redis.call('ZADD', parked, now, member)
  redis.call('EXPIRE', parked, KEPT)
  if string.sub(ARGV[at], 1, 4) == 'job:' then
    redis.call('ZADD', root .. 'awaited', now, ARGV[2])
    redis.call('EXPIRE', root .. 'awaited', KEPT)
  end
end
