-- Returns the wall clock, and every queue with its settings.
-- uses: clock
local found = redis.call('HGETALL', root .. 'queues')
table.insert(found, 1, string.format('%.17g', clock.wall))
return found
