-- What a queue counts and what its orders hold, as of one instant.
--   ARGV[2]  the queue, '' for all of them together
-- Answers state, counted, found …; of the states that have orders. Of all together one line: the sum of the
-- counts, and how many records there are.
-- uses: root
local MOST_LANES = 10000

local queue = ARGV[2]

if queue == '' then
  local counts, sum = redis.call('HGETALL', root .. 'counts'), 0
  for at = 1, #counts, 2 do
    if string.sub(counts[at], 1, 9) ~= 'retrying:' then sum = sum + counts[at + 1] end
  end
  return { 'all', sum, redis.call('HLEN', root .. 'jobs') }
end

local found = {}
local function add(state, jobs)
  found[#found + 1] = state
  found[#found + 1] = tonumber(redis.call('HGET', root .. 'counts', state .. ':' .. queue) or 0)
  found[#found + 1] = jobs
end

for _, state in ipairs({ 'scheduled', 'done', 'failed', 'cancelled' }) do
  add(state, redis.call('ZCARD', root .. state .. ':' .. queue))
end
add('running', redis.call('HLEN', root .. 'running:' .. queue))
-- With more lanes than that, one by one would keep the others waiting.
if redis.call('HLEN', root .. 'lanes:' .. queue) <= MOST_LANES then
  local ready = redis.call('ZCARD', root .. 'ready:' .. queue)
  for _, lane in ipairs(redis.call('HKEYS', root .. 'lanes:' .. queue)) do
    ready = ready + redis.call('ZCARD', root .. 'lane:' .. #queue .. ':' .. queue .. ':' .. lane)
  end
  add('ready', ready)
end
return found
