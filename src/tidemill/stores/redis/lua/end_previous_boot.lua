-- Ends all leases and lane blocks after a reboot, because boot times of two boots cannot be compared. Only an
-- injected clock (tests) can reboot; the server's clock keeps one boot id for ever. Returns 1 if the clock
-- has rebooted.
-- uses: clock job_record
if redis.call('HGET', shard, 'boot') == clock.boot_id then return 0 end
local known = redis.call('HGET', shard, 'boot')
redis.call('HSET', shard, 'boot', clock.boot_id)
if not known then return 0 end

local function end_leases(key)
  local rows = redis.call('HGETALL', root .. key)
  for at = 1, #rows, 2 do
    local ended = string.gsub(rows[at + 1], '"lease":[^,}]+', '"lease":0.0')
    redis.call('HSET', root .. key, rows[at], ended)
  end
end

local function group_of(lane)
  local inside = string.match(lane, '^[^\31]*\31([^\31]*)')
  if not inside then return '' end
  return inside == '' and '\31' or inside
end

-- Opens a blocked lane, so that the next claim tries it again.
local function reopen(queue, lane, row)
  local lacks = cmsgpack.unpack(sub(row, 8))[2]
  local opened = '\0' .. sub(row, 2, 7) .. '\147\192' .. cmsgpack.pack(lacks) .. '\192'
  redis.call('HSET', root .. 'lanes:' .. queue, lane, opened)
  local first = redis.call('ZRANGE', root .. 'lane:' .. join_names(queue, lane), 0, 0, 'WITHSCORES')
  redis.call('ZADD', root .. 'open_lanes:' .. join_names(queue, group_of(lane)), first[2],
    sub(row, 2, 7) .. sub(first[1], 9, 14) .. lane)
end

for _, worker in ipairs(redis.call('ZRANGE', root .. 'worker_leases', 0, -1)) do
  redis.call('ZADD', root .. 'worker_leases', 0, worker)
end
end_leases('leaders')
end_leases('abandoned_units')
for _, queue in ipairs(redis.call('HKEYS', root .. 'queues')) do
  for _, member in ipairs(redis.call('HKEYS', root .. 'running:' .. queue)) do
    redis.call('HSET', root .. 'running:' .. queue, member, 0)
  end
  local lanes = redis.call('HGETALL', root .. 'lanes:' .. queue)
  for at = 1, #lanes, 2 do reopen(queue, lanes[at], lanes[at + 1]) end
  redis.call('DEL', root .. 'blocked_lanes:' .. queue)
end
redis.call('DEL', root .. 'blocks')
for _, pattern in ipairs({ 'blocked_by:*', 'blocked_queues:*' }) do
  local cursor = '0'
  repeat
    local found = redis.call('SCAN', cursor, 'MATCH', string.gsub(root, '[%*%?%[%]\\]', '\\%0') .. pattern, 'COUNT', 1000)
    cursor = found[1]
    for _, key in ipairs(found[2]) do redis.call('DEL', key) end
  until cursor == '0'
end
return 1
