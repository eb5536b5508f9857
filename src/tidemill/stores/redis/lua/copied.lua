-- The rest of a copy from another store.
--   ARGV[2]   the highest fence that was given there
--   ARGV[3]…  of each arrival: the millisecond it came, id, task, payload, options
-- uses: root
local fence = tonumber(redis.call('HGET', shard, 'fence') or 0)
if fence < tonumber(ARGV[2]) then redis.call('HSET', shard, 'fence', ARGV[2]) end

local last = redis.call('XREVRANGE', root .. 'arrivals', '+', '-', 'COUNT', 1)[1]
local newest, number = -1, 0
if last then newest, number = string.match(last[1], '^(%d+)-(%d+)$') end
newest, number = tonumber(newest), tonumber(number)
for at = 3, #ARGV, 5 do
  local came = tonumber(ARGV[at])
  -- A stream only grows: one that came before its last stands behind it all the same.
  if came > newest then newest, number = came, 0 else number = number + 1 end
  redis.call('XADD', root .. 'arrivals', string.format('%.0f-%.0f', newest, number), 'id', ARGV[at + 1],
    'task', ARGV[at + 2], 'payload', ARGV[at + 3], 'options', ARGV[at + 4])
end
