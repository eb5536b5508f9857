-- Counters of queues: jobs by state (hash `counts`), and outcomes by minute.
-- uses: clock
local counted = {}

local function count(state, queue, by)
  local field = state .. ':' .. queue
  counted[field] = (counted[field] or 0) + by
end

local function write_counts()
  for field, by in pairs(counted) do
    if by ~= 0 then redis.call('HINCRBY', root .. 'counts', field, by) end
  end
end

-- The sorted set `history_minutes` lets pruning find old minutes.
local function count_minute(queue, what, by)
  local minute = string.format('%.0f', math.floor(clock.wall / 60) * 60)
  local name, field = 'history:' .. queue, minute .. ':' .. what
  if redis.call('HINCRBY', root .. name, field, by) == by then
    redis.call('ZADD', root .. 'history_minutes', minute, name .. ' ' .. field)
  end
end
