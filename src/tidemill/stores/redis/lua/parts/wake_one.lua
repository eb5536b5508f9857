-- Wakes one listener of a topic, because one job is work for one worker.
--
-- Listeners of a topic are members `handle/number` of the sorted set listeners:<topic>, oldest first. Each
-- handle subscribes to the channel wakeups:<handle>. A handle without a subscriber is skipped and removed.
-- uses: keys
local function notify(member)
  local handle, number = string.match(member, '^(.+)/(%d+)$')
  return redis.call('PUBLISH', root .. 'wakeups:' .. handle, number) > 0
end

local function wake_one(topic)
  local listeners = root .. 'listeners:' .. topic
  local first = redis.call('ZPOPMIN', listeners)[1]
  while first and not notify(first) do
    first = redis.call('ZPOPMIN', listeners)[1]
  end
end
