-- Settles jobs and claims the next ones.
--   ARGV[2]  number of settlements, per settlement: id, token (fence and claim id), outcome
--   then, for a claim, the arguments of parts/claim.lua
-- It handles the first settlements, up to the limits of one script, and claims only after the last one. An
-- outcome is a letter and its data:
--   d  done, [+ result]   f  failed, failure     c  cancelled, failure
--   r  retry: delay, 1 if the priority changes, priority, failure
--   z  snooze: delay      b  release
-- Returns a letter per handled settlement (o ok, a again, s stale, ? needs the engine) and, if no letter is
-- ?, the claim.
-- uses: out_of_memory clock wakeups job_record bulk_commands counters claim worklist
local ATTEMPTS_KEPT = 100
local STATES = { d = 'done', f = 'failed', c = 'cancelled' }
local ATTEMPT_OUTCOMES = { f = 'fail', r = 'retry' }

local given = tonumber(ARGV[2])
local ids, claims, reserved = {}, {}, {}
for item = 1, given do ids[item] = ARGV[3 * item] end
local records, items = get_some(root .. 'jobs', ids)
if redis.call('EXISTS', root .. 'reservations') == 1 then
  for item = 1, items do claims[item] = ARGV[3 * item + 1] .. ids[item] end
  reserved = get_many(root .. 'reservations', claims)
end

-- The script can end a job with a unique key, if no successor waits for it, and mark the job's flow. Any
-- other special job needs the engine.
local unique_keys, flows = {}, {}
local function can_settle(item, record, flags, rest)
  if has_flag(flags, KEYED) then return false end
  local more = optional_fields(record, flags, rest)
  if more.unknown_for or not (more.unique_key or more.flow) then return false end
  flows[item] = more.flow and more.flow.id
  if not more.unique_key then return true end
  unique_keys[item] = more.unique_key
  return redis.call('EXISTS', root .. 'successors:' .. ids[item]) == 0
end

local function answer(item)
  local record = records[item]
  if not record or reserved[item] then return '?' end
  local flags, rest = flags_and_rest(record)
  local at = claim_at(flags, rest)
  if not has_flag(flags, CLAIMED) or sub(record, at, at + 13) ~= ARGV[3 * item + 1] then return 's' end
  if sub(record, 1, 1) ~= 'x' then return 'a' end
  if has_flag(flags, FAILURE) and sub(ARGV[3 * item + 2], 1, 1) == 'c' then return '?' end
  if has_flag(flags, ENGINE_ONLY) and not can_settle(item, record, flags, rest) then return '?' end
  return 'o'
end

local answers, settled, needs_engine = {}, {}, false
for item = 1, items do
  local letter = answer(item)
  answers[item] = letter
  if letter == '?' then needs_engine = true end
  if letter == 'o' then
    local record = records[item]
    append_to(settled, sub(record, 42, rest_of(record) - 1), item, sub(record, 4, 9) .. ids[item])
  end
end

local now = pack('>d', clock.wall)
local written, topics, released, new_attempts, end_letters = {}, {}, {}, {}, {}
local has_waiters = items > 0 and redis.call('EXISTS', root .. 'job_waiters') == 1

local function record_attempt(id, kind, record, at, failure)
  local attempts, _, generation = unpack_('>III', record, 28)
  local worker = sub(record, at + 38, after_claim(record, CLAIMED, at) - 1)
  local error_ = string.match(failure, '^{"error":(.*),"reason":') or string.match(failure, '^{"error":(.*)}$')
  new_attempts[#new_attempts + 1] = { 'attempts:' .. id, string.format(
    '{"generation":%.0f,"attempt":%.0f,"started":%.17g,"ended":%.17g,"worker":%s,"outcome":"%s","error":%s}',
    generation, attempts + 1, unpack_('>d', record, at + 28), clock.wall, cjson.encode(worker), ATTEMPT_OUTCOMES[kind],
    error_) }
end

-- Returns the outcome's effect: state letter, times (priority, created, due), whether the attempt counts, the
-- failure (nil to keep it) and the result.
local function outcome_effect(record, kind, given)
  local times = sub(record, 10, 27)
  if kind == 'd' then
    return 'd', times, true, '', given ~= '' and pack('>I', #given - 1) .. sub(given, 2) or ''
  elseif kind == 'f' or kind == 'c' then
    return kind, times, kind == 'f', pack('>I', #given) .. given, ''
  elseif kind == 'b' then
    return 'r', times, false, nil, ''
  end
  local delay, at = unpack_('>d', given)
  local due, letter = pack('>d', clock.wall + delay), delay > 0 and 's' or 'r'
  if kind == 'z' then return letter, sub(times, 1, 10) .. due, false, nil, '' end
  local priority = byte(given, at) == 1 and sub(given, at + 1, at + 2) or sub(times, 1, 2)
  local failure = sub(given, at + 3)
  return letter, priority .. sub(times, 3, 10) .. due, true, pack('>I', #failure) .. failure, ''
end

-- Writes the new record, like core.transitions.settle_job. Returns its state letter and parts of it.
local function settle_one(item, lease, member)
  local record, outcome = records[item], ARGV[3 * item + 2]
  local kind, given = sub(outcome, 1, 1), sub(outcome, 2)
  local flags, rest = flags_and_rest(record)
  local at = claim_at(flags, rest)
  local claim_end = after_claim(record, flags, at)
  local report_end = after_text(record, has_flag(flags, REPORT), claim_end)
  local failure_end = after_text(record, has_flag(flags, FAILURE), report_end)
  local letter, times, is_charged, failure, result = outcome_effect(record, kind, given)
  if ATTEMPT_OUTCOMES[kind] then record_attempt(ids[item], kind, record, at, kind == 'r' and sub(given, 12) or given) end
  local counts = sub(record, 28, 31)
  if is_charged then counts = pack('>I', unpack_('>I', counts) + 1) end
  local finished = ''
  if STATES[letter] then flags, finished = bor(flags, ENDED), now end
  if failure then
    flags = failure == '' and band(flags, bnot(FAILURE)) or bor(flags, FAILURE)
  else
    failure = sub(record, report_end, failure_end - 1)
  end
  if result ~= '' then flags = bor(flags, RESULT) end
  written[#written + 1] = ids[item]
  written[#written + 1] = letter .. pack('>H', flags) .. sub(record, 4, 9) .. times .. counts
    .. sub(record, 32, at + 19) .. pack('>d', lease) .. sub(record, at + 28, report_end - 1)
    .. finished .. result .. failure .. sub(record, failure_end)
  append_to(released, sub(record, at + 38, claim_end - 1), member)
  return letter, flags, times, counts, rest
end

-- True if the end of a run may free capacity of the queue.
local function is_limited(queue)
  local row = redis.call('HGET', root .. 'queues', queue)
  if not row or row == '{}' then return false end
  local settings = cjson.decode(row)
  local declared = settings.declared or {}
  return settings.override or declared.concurrency or declared.key_concurrency
end

local function settle_queue(queue, found)
  local members, by_state, expiring, retrying, retried = {}, {}, {}, 0, 0
  for at = 2, #found, 2 do members[at / 2] = found[at] end
  local leases = get_many(root .. 'running:' .. queue, members)
  for at = 1, #members do
    local item, member = found[2 * at - 1], members[at]
    local letter, flags, times, counts, rest = settle_one(item, tonumber(leases[at]), member)
    if STATES[letter] then
      end_letters[item] = letter
      append_to(by_state, flows[item] and letter .. '_flow_jobs' or letter, clock.wall, member)
      if unique_keys[item] and not has_flag(flags, HOLDS) then
        redis.call('ZREM', root .. unique_key(queue, unique_keys[item]), member)
      end
      if has_waiters then topics[#topics + 1] = 'job:' .. ids[item] end
    else
      if letter == 'r' then
        append_to(by_state, letter, unpack_('>h', times), sub(times, 11) .. member)
      else
        append_to(by_state, letter, unpack_('>d', times, 11), member)
        if counts ~= '\0\0\0\0' then retrying = retrying + 1 end
      end
      if sub(ARGV[3 * item + 2], 1, 1) == 'r' then retried = retried + 1 end
      if has_flag(flags, EXPIRES) then
        expiring[#expiring + 1] = unpack_('>d', records[item], rest)
        expiring[#expiring + 1] = member
      end
    end
  end
  call_many('HDEL', root .. 'running:' .. queue, members)
  count('running', queue, -#members)
  for which, entries in pairs(by_state) do
    local letter = sub(which, 1, 1)
    local state = STATES[letter] or (letter == 'r' and 'ready' or 'scheduled')
    call_many('ZADD', root .. state .. sub(which, 2) .. ':' .. queue, entries)
    count(state, queue, #entries / 2)
    if STATES[letter] then count_minute(queue, state, #entries / 2) end
  end
  if by_state.r then redis.call('HSETNX', root .. 'served', queue, redis.call('HGET', shard, 'picks') or 0) end
  call_many('ZADD', root .. 'expiring', expiring)
  count('retrying', queue, retrying)
  if retried > 0 then count_minute(queue, 'retried', retried) end
  if by_state.r or by_state.s or is_limited(queue) then topics[#topics + 1] = 'queue:' .. queue end
end

-- Marks flows whose jobs have ended, in the order of settlement (F10).
local function mark_flows()
  local jobs, letters, in_order, is_marked = {}, {}, {}, false
  for item = 1, items do
    local flow = end_letters[item] and flows[item]
    if flow then
      if not jobs[flow] then in_order[#in_order + 1] = flow end
      append_to(jobs, flow, ids[item])
      append_to(letters, flow, ids[item], end_letters[item])
    end
  end
  for _, flow in ipairs(in_order) do
    call_many('HSET', root .. 'flow_job_states:' .. flow, letters[flow])
    is_marked = mark_document('flow', flow, jobs[flow]) or is_marked
  end
  if is_marked then topics[#topics + 1] = 'worklist:flow' end
end

for queue, found in pairs(settled) do settle_queue(queue, found) end
if next(flows) then mark_flows() end
call_many('HSET', root .. 'jobs', written)
for worker, members in pairs(released) do call_many('SREM', root .. 'held:' .. worker, members) end
for _, attempt in ipairs(new_attempts) do
  redis.call('RPUSH', root .. attempt[1], attempt[2])
  redis.call('LTRIM', root .. attempt[1], -ATTEMPTS_KEPT, -1)
end
write_counts()
wake_listeners(topics)

local reply = { table.concat(answers) }
if items == given and not needs_engine and ARGV[3 * given + 3] then reply[2] = claim_plain(3 * given + 3) end
return reply
