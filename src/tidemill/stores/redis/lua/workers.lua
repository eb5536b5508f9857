-- Workers whose lease runs. Answers of each its id, what it said of itself, and how many jobs run in its name.
-- uses: clock
local found = {}
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', root .. 'alive', '(' .. string.format('%.17g', clock.boot), '+inf')) do
  found[#found + 1] = worker
  found[#found + 1] = redis.call('HGET', root .. 'workers', worker) or '{}'
  found[#found + 1] = redis.call('SCARD', root .. 'held:' .. worker)
end
return found
