-- Ringing whoever listens (contract/wakeups.py), in the same step as the change it is about.
-- The set `awaited` has the handles that wait for ends of jobs: without any, ends cost nothing more.
-- uses: ring_one
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
