-- Plain jobs come in: without a key, pools, batching or a unique key.
--   ARGV[2]  how many groups, then of each: its queue, how many jobs, and of each job its id and its body
-- A body is flags, priority, [delay] [at] [expires], and the end of the record.
-- Answers how many groups were accepted. The one behind them needs more than this script knows.
-- uses: clock bell records many counting
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
local remembered = get_many(root .. 'remembered', ids)

-- Jobs that may still come, nil for any number, false where an override has to be looked at.
local rooms, is_new = {}, {}
local function room_of(queue)
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
  local new, queue, is_slow = {}, group.queue, false
  for at = group.first, group.last do
    if remembered[at] then is_slow = true end
    if not known[at] and not seen[ids[at]] then new[#new + 1] = at end
  end
  if is_new[queue] == nil then rooms[queue] = room_of(queue) end
  local room = rooms[queue]
  if is_slow or room == false or (room and #new > 0 and #new > room) then break end
  if room then rooms[queue] = room - #new end
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

-- When it is due, its expiry as it is kept, and where the end of its record begins.
local function times(body, flags, member)
  local due, expires, rest, given = clock.wall, '', 5
  if has(flags, DELAY) then
    given, rest = unpack_('>d', body, rest)
    due = clock.wall + given
  end
  if has(flags, AT) then due, rest = unpack_('>d', body, rest) end
  if has(flags, EXPIRES) then
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
  local place = pack('>I6', seq)
  local member, state, due_at, expires, rest = place .. id, 'r', now, '', 5
  if band(flags, DELAY + AT + EXPIRES) ~= 0 then
    local due
    due, expires, rest = times(body, flags, member)
    flags = band(flags, bnot(DELAY + AT))
    if due > clock.wall then
      state, due_at = 's', pack('>d', due)
      gather(scheduled, queue, due, member)
    end
  end
  if state == 'r' then gather(ready, queue, priority, now .. member) end
  records[2 * number - 1] = id
  records[2 * number] = state .. pack('>H', flags) .. place .. sub(body, 3, 4) .. now .. due_at .. NEVER_RUN
    .. pack('>H', #queue) .. queue .. expires .. sub(body, rest)
  gather(pages, math.floor(seq / 100), seq % 100, id)
end

call_many('HSET', root .. 'jobs', records)
for page, places in pairs(pages) do
  call_many('HSET', root .. 'page:' .. page, places)
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
ring(topics)
return done
