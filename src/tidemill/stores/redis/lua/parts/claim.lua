-- Claims ready jobs of queues whose jobs are all in the lane of plain jobs.
--   worker, claim number, lease in seconds, claim id, limit, number of shares, per share: queue, number of jobs
-- The claim id has 8 bytes. '' means that it is not drawn yet; a '!' before it means that it was drawn on
-- request. claim_plain(at) reads these arguments from ARGV[at] on and returns
--   'engine' if the engine must claim; nothing was claimed
--   'claim_id' if there are jobs to claim and a claim id is needed
--   {fence, more, seconds until the next due job or '', id, record, id, record, …}
-- uses: clock wakeups job_record bulk_commands counters
local MAX_PROMOTED = 250

-- Returns when the first scheduled job is due; nil if there is none.
local function first_due(queue)
  return tonumber(redis.call('ZRANGE', root .. 'scheduled:' .. queue, 0, 0, 'WITHSCORES')[2])
end

-- Promotes due jobs, up to the limits of one script (J30). False if one of them belongs to another lane.
local function promote(queue)
  local name = root .. 'scheduled:' .. queue
  local due = redis.call('ZRANGEBYSCORE', name, '-inf', clock.wall, 'LIMIT', 0, MAX_PROMOTED)
  local ids, members, records, ready, retrying = {}, {}, {}, {}, 0
  for at, member in ipairs(due) do ids[at] = id_of(member) end
  for at, record in ipairs((get_some(root .. 'jobs', ids))) do
    local _, flags, _, priority, _, _, attempts = head(record)
    if has_flag(flags, KEYED) then return false end
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
  wake_listeners({ 'queue:' .. queue })
  return true
end

-- Returns a queue and its free capacity; nil if there is no such queue, false if its settings need the
-- engine.
local function plain_queue(queue, row)
  if not row then return nil end
  local capacity = math.huge
  if row ~= '{}' then
    local settings = cjson.decode(row)
    if settings.pause or settings.override then return false end
    local limit = settings.declared and settings.declared.concurrency
    if limit then capacity = limit - (redis.call('HGET', root .. 'counts', 'running:' .. queue) or 0) end
  end
  if redis.call('EXISTS', root .. 'lanes:' .. queue) == 1 then return false end
  return { name = queue, capacity = capacity, taken = 0 }
end

-- Takes every share in order, then fills the rest of the limit: {queue, from, to} by rank in the lane.
local function portions(queues, shares, limit)
  local found, left = {}, limit
  local function take_jobs(queue, wanted)
    local jobs = math.min(wanted, left, queue.capacity - queue.taken, queue.ready - queue.taken)
    if jobs > 0 then
      found[#found + 1] = { queue, queue.taken + 1, queue.taken + jobs }
      queue.taken, left = queue.taken + jobs, left - jobs
    end
  end
  for _, share in ipairs(shares) do take_jobs(share[1], share[2]) end
  for _, queue in ipairs(queues) do take_jobs(queue, left) end
  return found
end

-- Reads the first jobs of a queue, up to `bytes`, and returns the bytes left; false if one of them has
-- expired.
local function read_first_jobs(queue, bytes)
  queue.members = redis.call('ZRANGE', root .. 'ready:' .. queue.name, 0, queue.taken - 1)
  queue.ids = {}
  for at, member in ipairs(queue.members) do queue.ids[at] = sub(member, 15) end
  queue.records, queue.taken, bytes = get_some(root .. 'jobs', queue.ids, bytes)
  for at = 1, #queue.records do
    local flags, rest = flags_and_rest(queue.records[at])
    if has_flag(flags, EXPIRES) and unpack_('>d', queue.records[at], rest) <= clock.wall then return false end
  end
  return bytes
end

-- Returns the portions whose records were read, shortened if necessary, and their number of jobs.
local function read_portions(found, queues)
  local left, read, jobs = MAX_BYTES, {}, 0
  for _, queue in ipairs(queues) do
    if queue.taken > 0 then left = read_first_jobs(queue, left) end
    if not left then return false end
    jobs = jobs + queue.taken
  end
  for _, portion in ipairs(found) do
    local to = math.min(portion[3], portion[1].taken)
    if portion[2] <= to then read[#read + 1] = { portion[1], portion[2], to } end
  end
  return read, jobs
end

-- Returns the record of a claimed job and its flags, like core.transitions.claim_job: an old report is
-- dropped.
local function claimed_record(record, claim_fields)
  local flags, rest = flags_and_rest(record)
  local at = claim_at(flags, rest)
  local behind = after_text(record, has_flag(flags, REPORT), after_claim(record, flags, at))
  local is_alone = sub(record, 32, 35) ~= '\0\0\0\0'
  flags = bor(band(flags, bnot(ALONE + REPORT)), is_alone and CLAIMED + ALONE or CLAIMED)
  return 'x' .. pack('>H', flags) .. sub(record, 4, at - 1) .. claim_fields .. sub(record, behind), flags
end

local function write_claims(queue, claim_fields, lease, worker)
  local records, running, held, expiring = {}, {}, {}, {}
  local lease_text = string.format('%.17g', lease)
  for at = 1, #queue.records do
    local member = sub(queue.members[at], 9)
    local record, flags = claimed_record(queue.records[at], claim_fields)
    records[2 * at - 1], records[2 * at] = queue.ids[at], record
    running[2 * at - 1], running[2 * at] = member, lease_text
    held[at] = member
    if has_flag(flags, EXPIRES) then expiring[#expiring + 1] = member end
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

local function write_worker(worker, number, last, lease)
  redis.call('HSET', root .. 'claim_numbers', worker, number)
  if not last then
    redis.call('HSET', root .. 'workers', worker, string.format('{"seen":%.17g}', clock.wall))
    redis.call('ZADD', root .. 'worker_leases', lease, worker)
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
  local is_second_call = #ARGV[at + 3] > 8
  local lease, limit = clock.boot + tonumber(ARGV[at + 2]), tonumber(ARGV[at + 4])
  local last = redis.call('HGET', root .. 'claim_numbers', worker)
  if last and number <= tonumber(last) then return 'engine' end
  local names, queues, shares, by_name = {}, {}, {}, {}
  for share = 1, tonumber(ARGV[at + 5]) do names[share] = ARGV[at + 4 + 2 * share] end
  local rows = get_many(root .. 'queues', names)
  for share, name in ipairs(names) do
    local queue = by_name[name]
    if not queue then
      queue = plain_queue(name, rows[share])
      if queue == false then return 'engine' end
      by_name[name] = queue
      if queue then queues[#queues + 1] = queue end
    end
    if queue then shares[#shares + 1] = { queue, tonumber(ARGV[at + 5 + 2 * share]) } end
  end
  for _, queue in ipairs(queues) do
    queue.due = first_due(queue.name)
    if not is_second_call and queue.due and queue.due <= clock.wall then
      if not promote(queue.name) then return 'engine' end
      queue.due = first_due(queue.name)
    end
    queue.ready = redis.call('ZCARD', root .. 'ready:' .. queue.name)
  end
  local found, jobs = read_portions(portions(queues, shares, limit), queues)
  if not found then return 'engine' end
  if jobs > 0 and claim_id == '' then return 'claim_id' end

  write_worker(worker, number, last, lease)
  local reply, more = { 0, 0, next_due(queues) }, 0
  if jobs > 0 then
    local fence = redis.call('HINCRBY', shard, 'fence', 1)
    local picks = redis.call('HINCRBY', shard, 'picks', jobs) - jobs
    local claim_fields = pack('>I6', fence) .. claim_id
      .. pack('>I6ddH', number, lease, clock.wall, #worker) .. worker
    reply[1] = fence
    for _, portion in ipairs(found) do
      local queue = portion[1]
      picks = picks + portion[3] - portion[2] + 1
      queue.served = picks
      for rank = portion[2], portion[3] do
        reply[#reply + 1] = queue.ids[rank]
        reply[#reply + 1] = queue.records[rank]
      end
    end
    for _, queue in ipairs(queues) do
      if queue.taken > 0 then write_claims(queue, claim_fields, lease, worker) end
    end
  end
  for _, queue in ipairs(queues) do
    if queue.ready > queue.taken and queue.capacity > queue.taken then reply[2] = 1 end
  end
  return reply
end
