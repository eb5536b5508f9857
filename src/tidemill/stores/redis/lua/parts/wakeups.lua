-- Wakes listeners (contract/coordination.py), atomically with the change. The sorted set `job_waiters` holds the
-- handles that wait for jobs to end. If it is empty, ends cost nothing more.
-- uses: wake_one
local function wake_all(topic)
  local listeners = root .. 'listeners:' .. topic
  local members = redis.call('ZRANGE', listeners, 0, -1)
  if #members > 0 then
    redis.call('DEL', listeners)
    for _, member in ipairs(members) do notify(member) end
  end
end

local function wake_listeners(topics)
  local has_waiters
  for _, topic in ipairs(topics) do
    local kind = string.sub(topic, 1, 4)
    if kind == 'queu' then
      wake_one(topic)
    elseif kind ~= 'job:' then
      wake_all(topic)
    else
      if has_waiters == nil then has_waiters = redis.call('EXISTS', root .. 'job_waiters') == 1 end
      if has_waiters then wake_all(topic) end
    end
  end
end
