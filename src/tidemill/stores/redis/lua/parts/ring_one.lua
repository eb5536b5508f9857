-- Ringing one of those who listen, for a job is work for one.
--
-- Listeners that wait for a topic are members `handle/number` of the sorted set parked:<topic>, oldest first;
-- each handle hears the channel bell:<handle>. A handle that nobody hears any more is passed over and forgotten.
-- uses: root
local function wake(member)
  local handle, number = string.match(member, '^(.+)/(%d+)$')
  return redis.call('PUBLISH', root .. 'bell:' .. handle, number) > 0
end

local function ring_one(topic)
  local parked = root .. 'parked:' .. topic
  local first = redis.call('ZPOPMIN', parked)[1]
  while first and not wake(first) do
    first = redis.call('ZPOPMIN', parked)[1]
  end
end
