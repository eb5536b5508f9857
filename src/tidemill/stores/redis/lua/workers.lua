-- Returns the workers whose lease has not ended: id, description, and number of running jobs per worker.
-- uses: clock
local found = {}
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', root .. 'worker_leases', '(' .. string.format('%.17g', clock.boot), '+inf')) do
  found[#found + 1] = worker
  found[#found + 1] = redis.call('HGET', root .. 'workers', worker) or '{}'
  found[#found + 1] = redis.call('SCARD', root .. 'held:' .. worker)
end
return found
