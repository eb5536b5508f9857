-- Removes a listener.
--   ARGV[2]   handle
--   ARGV[3]   number of the listener in this handle
--   ARGV[4]   1 if the handle no longer waits for any job to end
--   ARGV[5]…  topics
-- uses: keys
local member = ARGV[2] .. '/' .. ARGV[3]
for at = 5, #ARGV do
  redis.call('ZREM', root .. 'listeners:' .. ARGV[at], member)
end
if ARGV[4] == '1' then
  redis.call('ZREM', root .. 'job_waiters', ARGV[2])
end
