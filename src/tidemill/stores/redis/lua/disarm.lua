-- A listener waits no more.
--   ARGV[2]   its handle
--   ARGV[3]   its number there
--   ARGV[4]   1 if its handle now waits for the end of no job
--   ARGV[5]…  its topics
-- uses: root
local member = ARGV[2] .. '/' .. ARGV[3]
for at = 5, #ARGV do
  redis.call('ZREM', root .. 'parked:' .. ARGV[at], member)
end
if ARGV[4] == '1' then
  redis.call('ZREM', root .. 'awaited', ARGV[2])
end
