-- Loads any number of rows in one snapshot.
--   ARGV[2]   transaction, see parts/commit_turn.lua
--   ARGV[3]…  per query: number of words, words
-- Returns nothing if another transaction has the turn; otherwise {wall, boot, boot id, picks, seq, fence} and
-- one reply per query, see `queries` below.
-- uses: clock job_record bulk_commands commit_turn
local MAX_PROMOTED, DEFAULT_COUNT = 250, 3

local queries = {}

function queries.command(command, key, ...)
  return redis.call(command, root .. key, ...)
end

-- Returns {record, lease} for a running job, {record} for any other.
local function with_lease(id, record)
  if not record or sub(record, 1, 1) ~= 'x' then return { record } end
  local _, _, seq, _, _, _, _, _, _, queue = head(record)
  return { record, redis.call('HGET', root .. 'running:' .. queue, member_of(seq, id)) }
end

-- Returns {record, lease} per id.
function queries.jobs(...)
  local ids, found = { ... }, {}
  for at, record in ipairs(get_many(root .. 'jobs', ids)) do found[at] = with_lease(ids[at], record) end
  return found
end

-- Returns {description, lease, claim number}.
function queries.worker(id)
  return {
    redis.call('HGET', root .. 'workers', id),
    redis.call('ZSCORE', root .. 'worker_leases', id),
    redis.call('HGET', root .. 'claim_numbers', id),
  }
end

-- Returns {row, blocks, {group, lanes, …}, 1 if plain jobs are ready}.
function queries.queue(name)
  return {
    redis.call('HGET', root .. 'queues', name),
    redis.call('HGET', root .. 'blocks', name),
    redis.call('HGETALL', root .. 'lane_counts:' .. name),
    redis.call('EXISTS', root .. 'ready:' .. name),
  }
end

local function lane_key(queue, lane)
  return root .. (lane == '' and 'ready:' .. queue or 'lane:' .. join_names(queue, lane))
end

-- Returns {row, number of jobs, {member, priority, …}, {record, …}}. Records are returned only if `count` is
-- not 0. The row of the lane of plain jobs is its served number.
function queries.lane(queue, lane, count)
  local key, wanted = lane_key(queue, lane), tonumber(count)
  local row
  if lane == '' then
    row = redis.call('HGET', root .. 'served', queue)
  else
    row = redis.call('HGET', root .. 'lanes:' .. queue, lane)
  end
  local members = redis.call('ZRANGE', key, 0, (wanted > 0 and wanted or DEFAULT_COUNT) - 1, 'WITHSCORES')
  local ids = {}
  if wanted > 0 then
    for at = 1, #members, 2 do ids[#ids + 1] = sub(members[at], 15) end
  end
  return { row, redis.call('ZCARD', key), members, get_many(root .. 'jobs', ids) }
end

-- Returns {total, {member, priority, …}} of the open lanes of a group. The lane of plain jobs is never
-- blocked. Its member is computed here, because it changes with every job.
function queries.open_lanes(queue, group, count)
  local key, wanted = root .. 'open_lanes:' .. join_names(queue, group), tonumber(count)
  if wanted == 0 then wanted = DEFAULT_COUNT end
  local total, entries = redis.call('ZCARD', key), redis.call('ZRANGE', key, 0, wanted - 1, 'WITHSCORES')
  local first = group == '' and redis.call('ZRANGE', root .. 'ready:' .. queue, 0, 0, 'WITHSCORES') or {}
  if first[1] then
    local served = tonumber(redis.call('HGET', root .. 'served', queue) or 0)
    local member, priority = pack('>I6', served) .. sub(first[1], 9, 14), tonumber(first[2])
    local at = 1
    while entries[at] do
      local other = tonumber(entries[at + 1])
      if other > priority or (other == priority and entries[at] > member) then break end
      at = at + 2
    end
    table.insert(entries, at, member)
    table.insert(entries, at + 1, first[2])
    total = total + 1
  end
  return { total, entries }
end

-- Returns {total, {member, score, …}}: the entries that are due, and the next one.
local function due_entries(key, now, count, most)
  local due = redis.call('ZCOUNT', key, '-inf', now)
  local wanted = math.max(tonumber(count), math.min(due, most) + 1)
  return { redis.call('ZCARD', key), redis.call('ZRANGE', key, 0, wanted - 1, 'WITHSCORES') }
end

function queries.scheduled(queue, count)
  return due_entries(root .. 'scheduled:' .. queue, clock.wall, count, MAX_PROMOTED)
end

function queries.blocked_lanes(queue, count)
  return due_entries(root .. 'blocked_lanes:' .. queue, clock.boot, count, MAX_PROMOTED)
end

-- Loads everything that a claim of `limit` jobs may need: {{words, reply}, …}, as if queried one by one.
function queries.claim_candidates(queue, limit, most, batch_waits)
  local found = {}
  local function query(kind, ...)
    local answer = queries[kind](...)
    found[#found + 1] = { { kind, ... }, answer }
    return answer
  end
  local row = query('queue', queue)
  if not row[1] then return found end
  local ids, lanes = {}, {}
  local scheduled = query('scheduled', queue, '0')[2]
  for at = 1, #scheduled, 2 do
    if tonumber(scheduled[at + 1]) <= clock.wall then ids[#ids + 1] = id_of(scheduled[at]) end
  end
  if #ids > 0 then query('jobs', unpack(ids)) end
  query('command', 'SMEMBERS', batch_waits)
  local blocked = query('blocked_lanes', queue, '0')[2]
  for at = 1, #blocked, 2 do
    if tonumber(blocked[at + 1]) <= clock.boot then lanes[#lanes + 1] = blocked[at] end
  end
  local groups = { [''] = row[4] == 1 or nil }
  for at = 1, #row[3], 2 do groups[row[3][at]] = true end
  for group in pairs(groups) do
    local entries = query('open_lanes', queue, group, most)[2]
    for at = 1, #entries, 2 do lanes[#lanes + 1] = sub(entries[at], 13) end
  end
  local each = tonumber(limit) + 1
  if #lanes > 1 then each = math.max(2, math.floor(tonumber(limit) / #lanes) + 1) end
  for _, lane in ipairs(lanes) do query('lane', queue, lane, tostring(each)) end
  return found
end

-- Returns {member, …} of running jobs whose lease has ended or whose worker is dead, at most `limit` and at
-- most what one transaction may load.
function queries.overdue(limit, ...)
  local found, seen, most, left = {}, {}, tonumber(limit), MAX_BYTES
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
  answers[#answers + 1] = queries[ARGV[at + 1]](unpack(ARGV, at + 2, at + words))
  at = at + words + 1
end
return answers
