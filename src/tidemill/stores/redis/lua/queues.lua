-- The wall clock, and every queue with what is set on it.
-- uses: clock
local found = redis.call('HGETALL', root .. 'queues')
table.insert(found, 1, string.format('%.17g', clock.wall))
return found
