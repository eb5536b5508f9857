-- Writes the parts of a copy that are neither jobs nor ids.
--   ARGV[2]   highest fence of the source store
--   ARGV[3]…  per arrival: millisecond of its arrival, id, task, payload, options
-- uses: keys
local fence = tonumber(redis.call('HGET', shard, 'fence') or 0)
if fence < tonumber(ARGV[2]) then redis.call('HSET', shard, 'fence', ARGV[2]) end

local last = redis.call('XREVRANGE', root .. 'arrivals', '+', '-', 'COUNT', 1)[1]
local newest, number = -1, 0
if last then newest, number = string.match(last[1], '^(%d+)-(%d+)$') end
newest, number = tonumber(newest), tonumber(number)
for at = 3, #ARGV, 5 do
  local came = tonumber(ARGV[at])
  -- Stream ids only grow, so an arrival older than the last entry is added behind it.
  if came > newest then newest, number = came, 0 else number = number + 1 end
  redis.call('XADD', root .. 'arrivals', string.format('%.0f-%.0f', newest, number), 'id', ARGV[at + 1],
    'task', ARGV[at + 2], 'payload', ARGV[at + 3], 'options', ARGV[at + 4])
end
