-- The boot clock started anew: no lease and no wait of the last boot can be compared with it. Only a clock that
-- is given (tests) ever does; the server's goes on as the same for ever.
-- Answers 1 if so.
-- uses: clock records
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

-- Whatever it waited for is asked for again.
local function reopen(queue, lane, row)
  local lacks = cmsgpack.unpack(sub(row, 8))[2]
  local opened = '\0' .. sub(row, 2, 7) .. '\147\192' .. cmsgpack.pack(lacks) .. '\192'
  redis.call('HSET', root .. 'lanes:' .. queue, lane, opened)
  local first = redis.call('ZRANGE', root .. 'lane:' .. both(queue, lane), 0, 0, 'WITHSCORES')
  redis.call('ZADD', root .. 'open:' .. both(queue, group_of(lane)), first[2],
    sub(row, 2, 7) .. sub(first[1], 9, 14) .. lane)
end

for _, worker in ipairs(redis.call('ZRANGE', root .. 'alive', 0, -1)) do
  redis.call('ZADD', root .. 'alive', 0, worker)
end
end_leases('leaders')
end_leases('left')
for _, queue in ipairs(redis.call('HKEYS', root .. 'queues')) do
  for _, member in ipairs(redis.call('HKEYS', root .. 'running:' .. queue)) do
    redis.call('HSET', root .. 'running:' .. queue, member, 0)
  end
  local lanes = redis.call('HGETALL', root .. 'lanes:' .. queue)
  for at = 1, #lanes, 2 do reopen(queue, lanes[at], lanes[at + 1]) end
  redis.call('DEL', root .. 'wakes:' .. queue)
end
redis.call('DEL', root .. 'marks')
for _, pattern in ipairs({ 'shut:*', 'waiting:*' }) do
  local cursor = '0'
  repeat
    local found = redis.call('SCAN', cursor, 'MATCH', string.gsub(root, '[%*%?%[%]\\]', '\\%0') .. pattern, 'COUNT', 1000)
    cursor = found[1]
    for _, key in ipairs(found[2]) do redis.call('DEL', key) end
  until cursor == '0'
end
return 1
