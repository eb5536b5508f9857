-- Ringing whoever listens (contract/wakeups.py), in the same step as the change it is about.
--
-- Listeners that wait for a topic are members `handle/number` of the sorted set parked:<topic>, oldest first;
-- each handle hears the channel bell:<handle>. A queue's topic wakes one, for a job is work for one; others
-- wake everybody. A handle that nobody hears any more is passed over and forgotten.
-- The set `awaited` has the handles that wait for ends of jobs: without any, ends cost nothing more.
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

local function ring_all(topic)
  local parked = root .. 'parked:' .. topic
  local members = redis.call('ZRANGE', parked, 0, -1)
  if #members > 0 then
    redis.call('DEL', parked)
    for _, member in ipairs(members) do wake(member) end
  end
end

local function ring(topics)
  local awaited
  for _, topic in ipairs(topics) do
    local kind = string.sub(topic, 1, 4)
    if kind == 'queu' then
      ring_one(topic)
    elseif kind ~= 'job:' then
      ring_all(topic)
    else
      if awaited == nil then awaited = redis.call('EXISTS', root .. 'awaited') == 1 end
      if awaited then ring_all(topic) end
    end
  end
end
