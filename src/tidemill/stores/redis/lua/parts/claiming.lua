-- Ready jobs of queues where all stand in the one lane of plain jobs go into a worker's hands.
--   worker, number, lease in seconds, claim id, limit, how many shares, then of each its queue and how many jobs
-- The claim id is 8 bytes; '' if it is still to be drawn, and with a '!' before it when it was drawn after that.
-- claim_plain(at), with those in ARGV from `at` on, answers
--   'slow' when it takes more than this, and nothing was claimed
--   'claim' when there is something to claim, and a claim id is wanted
--   {fence, more, seconds to what is next due or '', id, record, id, record, …}
-- uses: clock bell records many counting
local PROMOTE_AT_ONCE = 250

-- When the first of its scheduled jobs is due; nil when there are none.
local function first_due(queue)
  return tonumber(redis.call('ZRANGE', root .. 'scheduled:' .. queue, 0, 0, 'WITHSCORES')[2])
end

-- J30, where some are due, as many as one step may take on. False when some stand in other lanes.
local function promote(queue)
  local name = root .. 'scheduled:' .. queue
  local due = redis.call('ZRANGEBYSCORE', name, '-inf', clock.wall, 'LIMIT', 0, PROMOTE_AT_ONCE)
  local ids, members, records, ready, retrying = {}, {}, {}, {}, 0
  for at, member in ipairs(due) do ids[at] = id_of(member) end
  for at, record in ipairs((get_some(root .. 'jobs', ids))) do
    local _, flags, _, priority, _, _, attempts = head(record)
    if has(flags, LANED) then return false end
    if attempts > 0 then retrying = retrying + 1 end
    members[at] = due[at]
    records[2 * at - 1], records[2 * at] = ids[at], 'r' .. sub(record, 2)
    ready[2 * at - 1], ready[2 * at] = priority, sub(record, 20, 27) .. due[at]
  end
  call_many('ZREM', name, members)
  call_many('HSET', root .. 'jobs', records)
  call_many('ZADD', root .. 'ready:' .. queue, ready)
  redis.call('HSETNX', root .. 'served', queue, redis.call('HGET', shard, 'picks') or 0)
  redis.call('HINCRBY', root .. 'counts', 'scheduled:' .. queue, -#members)
  redis.call('HINCRBY', root .. 'counts', 'ready:' .. queue, #members)
  if retrying > 0 then redis.call('HINCRBY', root .. 'counts', 'retrying:' .. queue, -retrying) end
  ring({ 'queue:' .. queue })
  return true
end

-- What may be taken from a queue; nil where there is none of that name, false where more is set on it.
local function plain_queue(queue, row)
  if not row then return nil end
  local room = math.huge
  if row ~= '{}' then
    local settings = cjson.decode(row)
    if settings.pause or settings.override then return false end
    local limit = settings.declared and settings.declared.concurrency
    if limit then room = limit - (redis.call('HGET', root .. 'counts', 'running:' .. queue) or 0) end
  end
  if redis.call('EXISTS', root .. 'lanes:' .. queue) == 1 then return false end
  return { name = queue, room = room, taken = 0 }
end

-- Every share in order, then what is left of the limit: {queue, from, to} by place in its lane.
local function portions(queues, shares, limit)
  local found, left = {}, limit
  local function take(queue, wanted)
    local jobs = math.min(wanted, left, queue.room - queue.taken, queue.ready - queue.taken)
    if jobs > 0 then
      found[#found + 1] = { queue, queue.taken + 1, queue.taken + jobs }
      queue.taken, left = queue.taken + jobs, left - jobs
    end
  end
  for _, share in ipairs(shares) do take(share[1], share[2]) end
  for _, queue in ipairs(queues) do take(queue, left) end
  return found
end

-- Reads who is next, as far as `bytes` go, and answers what is left of these; false when one of them is past its
-- expiry.
local function read_heads(queue, bytes)
  queue.members = redis.call('ZRANGE', root .. 'ready:' .. queue.name, 0, queue.taken - 1)
  queue.ids = {}
  for at, member in ipairs(queue.members) do queue.ids[at] = sub(member, 15) end
  queue.records, queue.taken, bytes = get_some(root .. 'jobs', queue.ids, bytes)
  for at = 1, #queue.records do
    local flags, rest = flags_and_rest(queue.records[at])
    if has(flags, EXPIRES) and unpack_('>d', queue.records[at], rest) <= clock.wall then return false end
  end
  return bytes
end

-- Those portions, or parts of them, that were read, and how many jobs they are.
local function read_portions(found, queues)
  local left, read, jobs = BYTES, {}, 0
  for _, queue in ipairs(queues) do
    if queue.taken > 0 then left = read_heads(queue, left) end
    if not left then return false end
    jobs = jobs + queue.taken
  end
  for _, portion in ipairs(found) do
    local to = math.min(portion[3], portion[1].taken)
    if portion[2] <= to then read[#read + 1] = { portion[1], portion[2], to } end
  end
  return read, jobs
end

-- As core.transitions.claimed: news of an earlier run go. With its flags.
local function claimed(record, words)
  local flags, rest = flags_and_rest(record)
  local at = claim_at(flags, rest)
  local behind = after_text(record, has(flags, NEWS), after_claim(record, flags, at))
  local is_alone = sub(record, 32, 35) ~= '\0\0\0\0'
  flags = bor(band(flags, bnot(ALONE + NEWS)), is_alone and CLAIMED + ALONE or CLAIMED)
  return 'x' .. pack('>H', flags) .. sub(record, 4, at - 1) .. words .. sub(record, behind), flags
end

local function take(queue, words, lease, worker)
  local records, running, held, expiring = {}, {}, {}, {}
  local until_ = string.format('%.17g', lease)
  for at = 1, #queue.records do
    local member = sub(queue.members[at], 9)
    local record, flags = claimed(queue.records[at], words)
    records[2 * at - 1], records[2 * at] = queue.ids[at], record
    running[2 * at - 1], running[2 * at] = member, until_
    held[at] = member
    if has(flags, EXPIRES) then expiring[#expiring + 1] = member end
  end
  call_many('HSET', root .. 'jobs', records)
  redis.call('ZREMRANGEBYRANK', root .. 'ready:' .. queue.name, 0, queue.taken - 1)
  call_many('HSET', root .. 'running:' .. queue.name, running)
  call_many('SADD', root .. 'held:' .. worker, held)
  call_many('ZREM', root .. 'expiring', expiring)
  redis.call('HINCRBY', root .. 'counts', 'ready:' .. queue.name, -queue.taken)
  redis.call('HINCRBY', root .. 'counts', 'running:' .. queue.name, queue.taken)
  if queue.taken == queue.ready then
    redis.call('HDEL', root .. 'served', queue.name)
  else
    redis.call('HSET', root .. 'served', queue.name, queue.served)
  end
end

local function note_worker(worker, number, last, lease)
  redis.call('HSET', root .. 'numbers', worker, number)
  if not last then
    redis.call('HSET', root .. 'workers', worker, string.format('{"seen":%.17g}', clock.wall))
    redis.call('ZADD', root .. 'alive', lease, worker)
  end
end

local function next_due(queues)
  local soonest
  for _, queue in ipairs(queues) do
    local due = queue.due
    if due and (not soonest or due < soonest) then soonest = due end
  end
  return soonest and string.format('%.17g', math.max(0, soonest - clock.wall)) or ''
end

local function claim_plain(at)
  local worker, number, claim_id = ARGV[at], tonumber(ARGV[at + 1]), sub(ARGV[at + 3], -8)
  local is_asked_again = #ARGV[at + 3] > 8
  local lease, limit = clock.boot + tonumber(ARGV[at + 2]), tonumber(ARGV[at + 4])
  local last = redis.call('HGET', root .. 'numbers', worker)
  if last and number <= tonumber(last) then return 'slow' end
  local names, queues, shares, by_name = {}, {}, {}, {}
  for share = 1, tonumber(ARGV[at + 5]) do names[share] = ARGV[at + 4 + 2 * share] end
  local rows = get_many(root .. 'queues', names)
  for share, name in ipairs(names) do
    local queue = by_name[name]
    if not queue then
      queue = plain_queue(name, rows[share])
      if queue == false then return 'slow' end
      by_name[name] = queue
      if queue then queues[#queues + 1] = queue end
    end
    if queue then shares[#shares + 1] = { queue, tonumber(ARGV[at + 5 + 2 * share]) } end
  end
  for _, queue in ipairs(queues) do
    queue.due = first_due(queue.name)
    if not is_asked_again and queue.due and queue.due <= clock.wall then
      if not promote(queue.name) then return 'slow' end
      queue.due = first_due(queue.name)
    end
    queue.ready = redis.call('ZCARD', root .. 'ready:' .. queue.name)
  end
  local found, jobs = read_portions(portions(queues, shares, limit), queues)
  if not found then return 'slow' end
  if jobs > 0 and claim_id == '' then return 'claim' end

  note_worker(worker, number, last, lease)
  local reply, more = { 0, 0, next_due(queues) }, 0
  if jobs > 0 then
    local fence = redis.call('HINCRBY', shard, 'fence', 1)
    local picks = redis.call('HINCRBY', shard, 'picks', jobs) - jobs
    local words = pack('>I6', fence) .. claim_id
      .. pack('>I6ddH', number, lease, clock.wall, #worker) .. worker
    reply[1] = fence
    for _, portion in ipairs(found) do
      local queue = portion[1]
      picks = picks + portion[3] - portion[2] + 1
      queue.served = picks
      for place = portion[2], portion[3] do
        reply[#reply + 1] = queue.ids[place]
        reply[#reply + 1] = queue.records[place]
      end
    end
    for _, queue in ipairs(queues) do
      if queue.taken > 0 then take(queue, words, lease, worker) end
    end
  end
  for _, queue in ipairs(queues) do
    if queue.ready > queue.taken and queue.room > queue.taken then reply[2] = 1 end
  end
  return reply
end
