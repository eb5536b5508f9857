-- Inserts plain jobs: no key, pools, batch or unique key.
--   ARGV[2]  number of groups, per group: queue, number of jobs, per job: id, body
-- A body is flags, priority, [delay] [at] [expires], and the tail of the record. Returns the number of
-- accepted groups. The next group, if any, needs the engine.
-- uses: clock wakeups job_record bulk_commands counters
local DELAY, AT = 2048, 4096

local groups, ids, bodies = {}, {}, {}
do
  local at = 3
  for number = 1, tonumber(ARGV[2]) do
    local jobs = tonumber(ARGV[at + 1])
    groups[number] = { queue = ARGV[at], first = #ids + 1, last = #ids + jobs }
    for job = at + 2, at + 2 * jobs, 2 do
      ids[#ids + 1] = ARGV[job]
      bodies[#ids] = ARGV[job + 1]
    end
    at = at + 2 + 2 * jobs
  end
end

local known = get_many(root .. 'jobs', ids)
local known_ids = get_many(root .. 'known_ids', ids)

-- How many jobs the queue's max_length still admits: nil for any number, false if an override needs the
-- engine.
local capacities, is_new = {}, {}
local function capacity_of(queue)
  local row = redis.call('HGET', root .. 'queues', queue)
  is_new[queue] = not row
  if not row or row == '{}' then return nil end
  local settings = cjson.decode(row)
  if settings.override then return false end
  local limit = settings.declared and settings.declared.max_length
  if not limit then return nil end
  local pending = redis.call('HMGET', root .. 'counts', 'ready:' .. queue, 'scheduled:' .. queue,
    'waiting:' .. queue)
  return limit - (pending[1] or 0) - (pending[2] or 0) - (pending[3] or 0)
end

local seen, accepted, queues, done = {}, {}, {}, 0
for number, group in ipairs(groups) do
  local new, queue, needs_engine = {}, group.queue, false
  for at = group.first, group.last do
    if known_ids[at] then needs_engine = true end
    if not known[at] and not seen[ids[at]] then new[#new + 1] = at end
  end
  if is_new[queue] == nil then capacities[queue] = capacity_of(queue) end
  local capacity = capacities[queue]
  if needs_engine or capacity == false or (capacity and #new > 0 and #new > capacity) then break end
  if capacity then capacities[queue] = capacity - #new end
  for _, at in ipairs(new) do
    seen[ids[at]] = true
    accepted[#accepted + 1] = at
    queues[#accepted] = queue
  end
  done = number
end
if #accepted == 0 then return done end

local seq = redis.call('HINCRBY', shard, 'seq', #accepted) - #accepted
local records, pages, ready, scheduled, expiring = {}, {}, {}, {}, {}
local now = pack('>d', clock.wall)
local NEVER_RUN = string.rep('\0', 12)

-- Returns the due time, the encoded expiry, and the offset of the record's tail.
local function times(body, flags, member)
  local due, expires, rest, given = clock.wall, '', 5
  if has_flag(flags, DELAY) then
    given, rest = unpack_('>d', body, rest)
    due = clock.wall + given
  end
  if has_flag(flags, AT) then due, rest = unpack_('>d', body, rest) end
  if has_flag(flags, EXPIRES) then
    given, rest = unpack_('>d', body, rest)
    expires = pack('>d', clock.wall + given)
    expiring[#expiring + 1] = clock.wall + given
    expiring[#expiring + 1] = member
  end
  return due, expires, rest
end

for number = 1, #accepted do
  local at, queue = accepted[number], queues[number]
  local id, body = ids[at], bodies[at]
  local flags, priority = unpack_('>Hh', body)
  seq = seq + 1
  local seq_bytes = pack('>I6', seq)
  local member, state, due_at, expires, rest = seq_bytes .. id, 'r', now, '', 5
  if band(flags, DELAY + AT + EXPIRES) ~= 0 then
    local due
    due, expires, rest = times(body, flags, member)
    flags = band(flags, bnot(DELAY + AT))
    if due > clock.wall then
      state, due_at = 's', pack('>d', due)
      append_to(scheduled, queue, due, member)
    end
  end
  if state == 'r' then append_to(ready, queue, priority, now .. member) end
  records[2 * number - 1] = id
  records[2 * number] = state .. pack('>H', flags) .. seq_bytes .. sub(body, 3, 4) .. now .. due_at .. NEVER_RUN
    .. pack('>H', #queue) .. queue .. expires .. sub(body, rest)
  append_to(pages, math.floor(seq / 100), seq % 100, id)
end

call_many('HSET', root .. 'jobs', records)
for page, entries in pairs(pages) do
  call_many('HSET', root .. 'page:' .. page, entries)
  redis.call('ZADD', root .. 'pages', page, page)
end
for queue, members in pairs(ready) do
  call_many('ZADD', root .. 'ready:' .. queue, members)
  redis.call('HSETNX', root .. 'served', queue, redis.call('HGET', shard, 'picks') or 0)
  count('ready', queue, #members / 2)
end
for queue, members in pairs(scheduled) do
  call_many('ZADD', root .. 'scheduled:' .. queue, members)
  count('scheduled', queue, #members / 2)
end
call_many('ZADD', root .. 'expiring', expiring)
write_counts()
local topics = {}
for queue, new in pairs(is_new) do
  if ready[queue] or scheduled[queue] then
    topics[#topics + 1] = 'queue:' .. queue
    if new then redis.call('HSETNX', root .. 'queues', queue, '{}') end
  end
end
wake_listeners(topics)
return done
