-- Looks up rows, any number in one step.
--   ARGV[2]   the step, see parts/turn.lua
--   ARGV[3]…  of each want: how many words, the words
-- Answers nothing when it is another's turn; else {wall, boot, boot id, picks, seq, fence} and an answer for each want, see `wants` below.
-- uses: clock records many turn
local PROMOTE_AT_ONCE, USUAL = 250, 3

local wants = {}

function wants.call(command, key, ...)
  return redis.call(command, root .. key, ...)
end

-- {record, lease}, of one that runs; {record} of any other
local function with_lease(id, record)
  if not record or sub(record, 1, 1) ~= 'x' then return { record } end
  local _, _, seq, _, _, _, _, _, _, queue = head(record)
  return { record, redis.call('HGET', root .. 'running:' .. queue, member_of(seq, id)) }
end

-- {record, lease} of each id
function wants.jobs(...)
  local ids, found = { ... }, {}
  for at, record in ipairs(get_many(root .. 'jobs', ids)) do found[at] = with_lease(ids[at], record) end
  return found
end

-- {what it said, lease, number}
function wants.worker(id)
  return {
    redis.call('HGET', root .. 'workers', id),
    redis.call('ZSCORE', root .. 'alive', id),
    redis.call('HGET', root .. 'numbers', id),
  }
end

-- {row, marks, {group, lanes, …}, 1 if plain jobs are ready}
function wants.queue(name)
  return {
    redis.call('HGET', root .. 'queues', name),
    redis.call('HGET', root .. 'marks', name),
    redis.call('HGETALL', root .. 'groups:' .. name),
    redis.call('EXISTS', root .. 'ready:' .. name),
  }
end

local function lane_key(queue, lane)
  return root .. (lane == '' and 'ready:' .. queue or 'lane:' .. both(queue, lane))
end

-- {row, how many jobs, {member, priority, …}, {record, …}}: records where a number of jobs was asked for. The
-- row of the lane of plain jobs is when it was served.
function wants.lane(queue, lane, count)
  local key, wanted = lane_key(queue, lane), tonumber(count)
  local row
  if lane == '' then
    row = redis.call('HGET', root .. 'served', queue)
  else
    row = redis.call('HGET', root .. 'lanes:' .. queue, lane)
  end
  local members = redis.call('ZRANGE', key, 0, (wanted > 0 and wanted or USUAL) - 1, 'WITHSCORES')
  local ids = {}
  if wanted > 0 then
    for at = 1, #members, 2 do ids[#ids + 1] = sub(members[at], 15) end
  end
  return { row, redis.call('ZCARD', key), members, get_many(root .. 'jobs', ids) }
end

-- {how many, {place, priority, …}} of the lanes of a group that are open. That of plain jobs is never shut, and
-- its place is made up here: it changes with every job.
function wants.open(queue, group, count)
  local key, wanted = root .. 'open:' .. both(queue, group), tonumber(count)
  if wanted == 0 then wanted = USUAL end
  local total, places = redis.call('ZCARD', key), redis.call('ZRANGE', key, 0, wanted - 1, 'WITHSCORES')
  local first = group == '' and redis.call('ZRANGE', root .. 'ready:' .. queue, 0, 0, 'WITHSCORES') or {}
  if first[1] then
    local served = tonumber(redis.call('HGET', root .. 'served', queue) or 0)
    local place, priority = pack('>I6', served) .. sub(first[1], 9, 14), tonumber(first[2])
    local at = 1
    while places[at] do
      local other = tonumber(places[at + 1])
      if other > priority or (other == priority and places[at] > place) then break end
      at = at + 2
    end
    table.insert(places, at, place)
    table.insert(places, at + 1, first[2])
    total = total + 1
  end
  return { total, places }
end

-- {how many, {member, score, …}}: those whose time has come, and the next one
local function beginning(key, now, count, most)
  local due = redis.call('ZCOUNT', key, '-inf', now)
  local wanted = math.max(tonumber(count), math.min(due, most) + 1)
  return { redis.call('ZCARD', key), redis.call('ZRANGE', key, 0, wanted - 1, 'WITHSCORES') }
end

function wants.scheduled(queue, count)
  return beginning(root .. 'scheduled:' .. queue, clock.wall, count, PROMOTE_AT_ONCE)
end

function wants.wakes(queue, count)
  return beginning(root .. 'wakes:' .. queue, clock.boot, count, PROMOTE_AT_ONCE)
end

-- What a claim of so many jobs meets: {{words, answer}, …} as they would be answered one by one.
function wants.ahead(queue, limit, most, unripe)
  local found = {}
  local function look(kind, ...)
    local answer = wants[kind](...)
    found[#found + 1] = { { kind, ... }, answer }
    return answer
  end
  local row = look('queue', queue)
  if not row[1] then return found end
  local ids, lanes = {}, {}
  local scheduled = look('scheduled', queue, '0')[2]
  for at = 1, #scheduled, 2 do
    if tonumber(scheduled[at + 1]) <= clock.wall then ids[#ids + 1] = id_of(scheduled[at]) end
  end
  if #ids > 0 then look('jobs', unpack(ids)) end
  look('call', 'SMEMBERS', unripe)
  local wakes = look('wakes', queue, '0')[2]
  for at = 1, #wakes, 2 do
    if tonumber(wakes[at + 1]) <= clock.boot then lanes[#lanes + 1] = wakes[at] end
  end
  local groups = { [''] = row[4] == 1 or nil }
  for at = 1, #row[3], 2 do groups[row[3][at]] = true end
  for group in pairs(groups) do
    local places = look('open', queue, group, most)[2]
    for at = 1, #places, 2 do lanes[#lanes + 1] = sub(places[at], 13) end
  end
  local each = tonumber(limit) + 1
  if #lanes > 1 then each = math.max(2, math.floor(tonumber(limit) / #lanes) + 1) end
  for _, lane in ipairs(lanes) do look('lane', queue, lane, tostring(each)) end
  return found
end

-- Running jobs whose lease is over or whose worker is dead, `limit` at once and no more than one step may take on:
-- {member, …}
function wants.overdue(limit, ...)
  local found, seen, most, left = {}, {}, tonumber(limit), BYTES
  local function add(member)
    if #found < most and left > 0 and not seen[member] then
      found[#found + 1], seen[member] = member, true
      left = left - redis.call('HSTRLEN', root .. 'jobs', id_of(member))
    end
  end
  for _, queue in ipairs(redis.call('HKEYS', root .. 'queues')) do
    local leases = redis.call('HGETALL', root .. 'running:' .. queue)
    for at = 1, #leases, 2 do
      if tonumber(leases[at + 1]) <= clock.boot then add(leases[at]) end
    end
  end
  for _, worker in ipairs({ ... }) do
    if #found < most then
      for _, member in ipairs(redis.call('SMEMBERS', root .. 'held:' .. worker)) do add(member) end
    end
  end
  return found
end

if is_others_turn(ARGV[2]) then return {} end
local kept = redis.call('HMGET', shard, 'picks', 'seq', 'fence')
local answers = { {
  string.format('%.17g', clock.wall), string.format('%.17g', clock.boot), clock.boot_id,
  kept[1] or '0', kept[2] or '0', kept[3] or '0',
} }
local at = 3
while ARGV[at] do
  local words = tonumber(ARGV[at])
  answers[#answers + 1] = wants[ARGV[at + 1]](unpack(ARGV, at + 2, at + words))
  at = at + words + 1
end
return answers
