-- Compares a queue's counters with the sizes of its indexes, in one snapshot.
--   ARGV[2]  queue, '' for the whole store
-- Returns name, counted, found … for the states that have an index, and for lanes. For the whole store it
-- returns one row: the sum of all counters and the number of records.
-- uses: keys job_record
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
local function compare(what, counted, actual)
  found[#found + 1] = what
  found[#found + 1] = counted
  found[#found + 1] = actual
end

local function add(state, jobs)
  compare(state .. ' jobs', tonumber(redis.call('HGET', root .. 'counts', state .. ':' .. queue) or 0), jobs)
end

add('scheduled', redis.call('ZCARD', root .. 'scheduled:' .. queue))
for _, state in ipairs({ 'done', 'failed', 'cancelled' }) do
  add(state, redis.call('ZCARD', root .. state .. ':' .. queue)
    + redis.call('ZCARD', root .. state .. '_flow_jobs:' .. queue))
end
add('running', redis.call('HLEN', root .. 'running:' .. queue))
-- With more lanes than this, reading them one by one would block the server.
if redis.call('HLEN', root .. 'lanes:' .. queue) <= MOST_LANES then
  local ready = redis.call('ZCARD', root .. 'ready:' .. queue)
  for _, lane in ipairs(redis.call('HKEYS', root .. 'lanes:' .. queue)) do
    ready = ready + redis.call('ZCARD', root .. 'lane:' .. join_names(queue, lane))
  end
  add('ready', ready)
end

-- Every lane belongs to one group, and is either in the open lanes or in the blocked lanes.
local lanes, grouped, in_order = redis.call('HLEN', root .. 'lanes:' .. queue), 0, 0
local groups = redis.call('HGETALL', root .. 'lane_counts:' .. queue)
for at = 1, #groups, 2 do
  grouped = grouped + groups[at + 1]
  in_order = in_order + redis.call('ZCARD', root .. 'open_lanes:' .. join_names(queue, groups[at]))
end
compare('lanes in groups', grouped, lanes)
compare('lanes that are open or blocked', in_order + redis.call('ZCARD', root .. 'blocked_lanes:' .. queue), lanes)
return found
