-- Registers a listener.
--   ARGV[2]   handle
--   ARGV[3]   number of the listener in this handle
--   ARGV[4]…  topics
-- The entry of a killed process expires after an hour. A live listener arms again long before that.
-- uses: out_of_memory
local EXPIRY_SECONDS = 3600

local time = redis.call('TIME')
local now = time[1] .. '.' .. string.format('%06d', time[2])
local member = ARGV[2] .. '/' .. ARGV[3]
for at = 4, #ARGV do
  local listeners = root .. 'listeners:' .. ARGV[at]
  redis.call('ZADD', listeners, now, member)
  redis.call('EXPIRE', listeners, EXPIRY_SECONDS)
  if string.sub(ARGV[at], 1, 4) == 'job:' then
    redis.call('ZADD', root .. 'job_waiters', now, ARGV[2])
    redis.call('EXPIRE', root .. 'job_waiters', EXPIRY_SECONDS)
  end
end
