-- What became of jobs in workers' hands, and the next ones.
--   ARGV[2]  how many settlements, then of each: the job's id, its token (fence and claim id), the outcome
--   then, where the next jobs are wanted too, the arguments of parts/claiming.lua
-- It takes the first of them, as many as one step may take on, and only behind the last one claims.
-- An outcome is a letter and what belongs to it:
--   d  done, [+ result]   f  failed, fate        c  cancelled, fate
--   r  to be retried: delay, 1 if its priority changes, priority, fate
--   z  put off: delay     b  given back
-- Answers a letter for each it took (o ok, a again, s stale, ? needs more than this script knows) and the claim,
-- if there is no ? among them.
-- uses: full clock bell records many counting claiming stirring
local ATTEMPTS_KEPT = 100
local STATES = { d = 'done', f = 'failed', c = 'cancelled' }
local WORDS = { f = 'fail', r = 'retry' }

local given = tonumber(ARGV[2])
local ids, claims, reserved = {}, {}, {}
for item = 1, given do ids[item] = ARGV[3 * item] end
local records, items = get_some(root .. 'jobs', ids)
if redis.call('EXISTS', root .. 'reserved') == 1 then
  for item = 1, items do claims[item] = ARGV[3 * item + 1] .. ids[item] end
  reserved = get_many(root .. 'reserved', claims)
end

-- A unique key goes with its job, where nobody waits for the job's end; a flow is told. Anything else that is
-- special about a job takes more than this script knows.
local unique_keys, flows = {}, {}
local function knows_all_of(item, record, flags, rest)
  if has(flags, LANED) then return false end
  local more = more_of(record, flags, rest)
  if more.unknown_for or not (more.unique_key or more.flow) then return false end
  flows[item] = more.flow and more.flow.id
  if not more.unique_key then return true end
  unique_keys[item] = more.unique_key
  return redis.call('EXISTS', root .. 'after:' .. ids[item]) == 0
end

local function answer(item)
  local record = records[item]
  if not record or reserved[item] then return '?' end
  local flags, rest = flags_and_rest(record)
  local at = claim_at(flags, rest)
  if not has(flags, CLAIMED) or sub(record, at, at + 13) ~= ARGV[3 * item + 1] then return 's' end
  if sub(record, 1, 1) ~= 'x' then return 'a' end
  if has(flags, FATE) and sub(ARGV[3 * item + 2], 1, 1) == 'c' then return '?' end
  if has(flags, SPECIAL) and not knows_all_of(item, record, flags, rest) then return '?' end
  return 'o'
end

local answers, settled, is_slow = {}, {}, false
for item = 1, items do
  local letter = answer(item)
  answers[item] = letter
  if letter == '?' then is_slow = true end
  if letter == 'o' then
    local record = records[item]
    gather(settled, sub(record, 42, rest_of(record) - 1), item, sub(record, 4, 9) .. ids[item])
  end
end

local now = pack('>d', clock.wall)
local written, topics, unheld, attempted, ends = {}, {}, {}, {}, {}
local is_awaited = items > 0 and redis.call('EXISTS', root .. 'awaited') == 1

local function record_attempt(id, kind, record, at, fate)
  local attempts, _, generation = unpack_('>III', record, 28)
  local worker = sub(record, at + 38, after_claim(record, CLAIMED, at) - 1)
  local error_ = string.match(fate, '^{"error":(.*),"reason":') or string.match(fate, '^{"error":(.*)}$')
  attempted[#attempted + 1] = { 'attempts:' .. id, string.format(
    '{"generation":%.0f,"attempt":%.0f,"started":%.17g,"ended":%.17g,"worker":%s,"outcome":"%s","error":%s}',
    generation, attempts + 1, unpack_('>d', record, at + 28), clock.wall, cjson.encode(worker), WORDS[kind],
    error_) }
end

-- What an outcome makes of its job: the letter of its state, its times (priority, created and due), whether the
-- attempt counts, its fate (nil to keep it) and its result.
local function becomes(record, kind, given)
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
  local fate = sub(given, at + 3)
  return letter, priority .. sub(times, 3, 10) .. due, true, pack('>I', #fate) .. fate, ''
end

-- As core.transitions.settled. Answers the letter of its state, and its new record.
local function settle_one(item, lease, filed)
  local record, outcome = records[item], ARGV[3 * item + 2]
  local kind, given = sub(outcome, 1, 1), sub(outcome, 2)
  local flags, rest = flags_and_rest(record)
  local at = claim_at(flags, rest)
  local behind = after_claim(record, flags, at)
  local news_end = after_text(record, has(flags, NEWS), behind)
  local fate_end = after_text(record, has(flags, FATE), news_end)
  local letter, times, is_charged, fate, result = becomes(record, kind, given)
  if WORDS[kind] then record_attempt(ids[item], kind, record, at, kind == 'r' and sub(given, 12) or given) end
  local counts = sub(record, 28, 31)
  if is_charged then counts = pack('>I', unpack_('>I', counts) + 1) end
  local finished = ''
  if STATES[letter] then flags, finished = bor(flags, ENDED), now end
  if fate then
    flags = fate == '' and band(flags, bnot(FATE)) or bor(flags, FATE)
  else
    fate = sub(record, news_end, fate_end - 1)
  end
  if result ~= '' then flags = bor(flags, RESULT) end
  written[#written + 1] = ids[item]
  written[#written + 1] = letter .. pack('>H', flags) .. sub(record, 4, 9) .. times .. counts
    .. sub(record, 32, at + 19) .. pack('>d', lease) .. sub(record, at + 28, news_end - 1)
    .. finished .. result .. fate .. sub(record, fate_end)
  gather(unheld, sub(record, at + 38, behind - 1), filed)
  return letter, flags, times, counts, rest
end

-- Whether the end of a run lets another begin.
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
      ends[item] = letter
      gather(by_state, flows[item] and letter .. '_parts' or letter, clock.wall, member)
      if unique_keys[item] and not has(flags, HOLDS) then
        redis.call('ZREM', root .. unique_key(queue, unique_keys[item]), member)
      end
      if is_awaited then topics[#topics + 1] = 'job:' .. ids[item] end
    else
      if letter == 'r' then
        gather(by_state, letter, unpack_('>h', times), sub(times, 11) .. member)
      else
        gather(by_state, letter, unpack_('>d', times, 11), member)
        if counts ~= '\0\0\0\0' then retrying = retrying + 1 end
      end
      if sub(ARGV[3 * item + 2], 1, 1) == 'r' then retried = retried + 1 end
      if has(flags, EXPIRES) then
        expiring[#expiring + 1] = unpack_('>d', records[item], rest)
        expiring[#expiring + 1] = member
      end
    end
  end
  call_many('HDEL', root .. 'running:' .. queue, members)
  count('running', queue, -#members)
  for which, places in pairs(by_state) do
    local letter = sub(which, 1, 1)
    local state = STATES[letter] or (letter == 'r' and 'ready' or 'scheduled')
    call_many('ZADD', root .. state .. sub(which, 2) .. ':' .. queue, places)
    count(state, queue, #places / 2)
    if STATES[letter] then count_minute(queue, state, #places / 2) end
  end
  if by_state.r then redis.call('HSETNX', root .. 'served', queue, redis.call('HGET', shard, 'picks') or 0) end
  call_many('ZADD', root .. 'expiring', expiring)
  count('retrying', queue, retrying)
  if retried > 0 then count_minute(queue, 'retried', retried) end
  if by_state.r or by_state.s or is_limited(queue) then topics[#topics + 1] = 'queue:' .. queue end
end

-- F10, in the order they were settled.
local function tell_flows()
  local jobs, letters, in_turn, is_told = {}, {}, {}, false
  for item = 1, items do
    local flow = ends[item] and flows[item]
    if flow then
      if not jobs[flow] then in_turn[#in_turn + 1] = flow end
      gather(jobs, flow, ids[item])
      gather(letters, flow, ids[item], ends[item])
    end
  end
  for _, flow in ipairs(in_turn) do
    call_many('HSET', root .. 'part_ends:' .. flow, letters[flow])
    is_told = stir('flow', flow, jobs[flow]) or is_told
  end
  if is_told then topics[#topics + 1] = 'agenda:flow' end
end

for queue, found in pairs(settled) do settle_queue(queue, found) end
if next(flows) then tell_flows() end
call_many('HSET', root .. 'jobs', written)
for worker, members in pairs(unheld) do call_many('SREM', root .. 'held:' .. worker, members) end
for _, news in ipairs(attempted) do
  redis.call('RPUSH', root .. news[1], news[2])
  redis.call('LTRIM', root .. news[1], -ATTEMPTS_KEPT, -1)
end
write_counts()
ring(topics)

local reply = { table.concat(answers) }
if items == given and not is_slow and ARGV[3 * given + 3] then reply[2] = claim_plain(3 * given + 3) end
return reply
