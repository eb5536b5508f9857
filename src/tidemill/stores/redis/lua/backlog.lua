-- Reads the facts about a queue that its counters do not hold.
--   ARGV[2]  queue
-- Returns the due time of the next scheduled job, the number of scheduled jobs that have run before, the
-- finish time of the last ended job that still exists, and the newest minute in which a job ended that may be
-- deleted. '' means none; '?' means that minutes of other queues hide the answer.
-- uses: keys
local CHUNK_MINUTES, MAX_MINUTES = 500, 5000

local queue = ARGV[2]
local due = redis.call('ZRANGE', root .. 'scheduled:' .. queue, 0, 0, 'WITHSCORES')[2]
local retrying = redis.call('HGET', root .. 'counts', 'retrying:' .. queue)

local ended
for _, state in ipairs({ 'done', 'failed', 'cancelled', 'done_flow_jobs', 'failed_flow_jobs', 'cancelled_flow_jobs' }) do
  local last = tonumber(redis.call('ZREVRANGE', root .. state .. ':' .. queue, 0, 0, 'WITHSCORES')[2])
  if last and (not ended or last > ended) then ended = last end
end

-- A minute starts before the jobs that ended in it, so only later minutes add information.
local ENDS = { done = true, failed = true, cancelled = true }
local function newest_minute()
  local name, offset = 'history:' .. queue .. ' ', 0
  local after = ended and '(' .. string.format('%.17g', ended) or '-inf'
  while offset < MAX_MINUTES do
    local some = redis.call('ZREVRANGEBYSCORE', root .. 'history_minutes', '+inf', after, 'LIMIT', offset, CHUNK_MINUTES)
    for _, member in ipairs(some) do
      if string.sub(member, 1, #name) == name then
        local minute, what = string.match(string.sub(member, #name + 1), '^(%d+):(%a+)$')
        if minute and ENDS[what] then return minute end
      end
    end
    if #some < CHUNK_MINUTES then return '' end
    offset = offset + CHUNK_MINUTES
  end
  return '?'
end
return { due or '', retrying or '', ended and string.format('%.17g', ended) or '', newest_minute() }
