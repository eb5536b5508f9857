-- What the counters of a queue do not tell.
--   ARGV[2]  the queue
-- Answers when the next scheduled job is due, how many of these have run before, when a job that is kept last
-- ended, and the newest minute in which one ended that may be gone; '' for what there is not, '?' where minutes of
-- other queues are in the way.
-- uses: root
local AT_ONCE, MOST = 500, 5000

local queue = ARGV[2]
local due = redis.call('ZRANGE', root .. 'scheduled:' .. queue, 0, 0, 'WITHSCORES')[2]
local retrying = redis.call('HGET', root .. 'counts', 'retrying:' .. queue)

local ended
for _, state in ipairs({ 'done', 'failed', 'cancelled', 'done_parts', 'failed_parts', 'cancelled_parts' }) do
  local last = tonumber(redis.call('ZREVRANGE', root .. state .. ':' .. queue, 0, 0, 'WITHSCORES')[2])
  if last and (not ended or last > ended) then ended = last end
end

-- A minute begins before the job that ended in it: only later ones tell something new.
local ENDS = { done = true, failed = true, cancelled = true }
local function newest_minute()
  local name, offset = 'history:' .. queue .. ' ', 0
  local after = ended and '(' .. string.format('%.17g', ended) or '-inf'
  while offset < MOST do
    local some = redis.call('ZREVRANGEBYSCORE', root .. 'minutes', '+inf', after, 'LIMIT', offset, AT_ONCE)
    for _, member in ipairs(some) do
      if string.sub(member, 1, #name) == name then
        local minute, what = string.match(string.sub(member, #name + 1), '^(%d+):(%a+)$')
        if minute and ENDS[what] then return minute end
      end
    end
    if #some < AT_ONCE then return '' end
    offset = offset + AT_ONCE
  end
  return '?'
end
return { due or '', retrying or '', ended and string.format('%.17g', ended) or '', newest_minute() }
