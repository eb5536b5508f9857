-- What a queue counts and what its orders hold, as of one instant.
--   ARGV[2]  the queue, '' for all of them together
-- Answers what, counted, found …; of the states that have orders, and of lanes. Of all together one line: the
-- sum of the counts, and how many records there are.
-- uses: root records
local MOST_LANES = 10000

local queue = ARGV[2]

if queue == '' then
  local counts, sum = redis.call('HGETALL', root .. 'counts'), 0
  for at = 1, #counts, 2 do
    if string.sub(counts[at], 1, 9) ~= 'retrying:' then sum = sum + counts[at + 1] end
  end
  return { 'jobs', sum, redis.call('HLEN', root .. 'jobs') }
end

local found = {}
local function compare(what, counted, has)
  found[#found + 1] = what
  found[#found + 1] = counted
  found[#found + 1] = has
end

local function add(state, jobs)
  compare(state .. ' jobs', tonumber(redis.call('HGET', root .. 'counts', state .. ':' .. queue) or 0), jobs)
end

add('scheduled', redis.call('ZCARD', root .. 'scheduled:' .. queue))
for _, state in ipairs({ 'done', 'failed', 'cancelled' }) do
  add(state, redis.call('ZCARD', root .. state .. ':' .. queue)
    + redis.call('ZCARD', root .. state .. '_parts:' .. queue))
end
add('running', redis.call('HLEN', root .. 'running:' .. queue))
-- With more lanes than that, one by one would keep the others waiting.
if redis.call('HLEN', root .. 'lanes:' .. queue) <= MOST_LANES then
  local ready = redis.call('ZCARD', root .. 'ready:' .. queue)
  for _, lane in ipairs(redis.call('HKEYS', root .. 'lanes:' .. queue)) do
    ready = ready + redis.call('ZCARD', root .. 'lane:' .. both(queue, lane))
  end
  add('ready', ready)
end

-- Every lane belongs to one group, and is either open in its order or shut until it wakes.
local lanes, grouped, in_order = redis.call('HLEN', root .. 'lanes:' .. queue), 0, 0
local groups = redis.call('HGETALL', root .. 'groups:' .. queue)
for at = 1, #groups, 2 do
  grouped = grouped + groups[at + 1]
  in_order = in_order + redis.call('ZCARD', root .. 'open:' .. both(queue, groups[at]))
end
compare('lanes in groups', grouped, lanes)
compare('lanes that are open or shut', in_order + redis.call('ZCARD', root .. 'wakes:' .. queue), lanes)
return found
