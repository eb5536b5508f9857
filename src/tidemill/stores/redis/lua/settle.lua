-- What became of jobs in workers' hands, and the next ones.
--   ARGV[2]  how many settlements, then of each: the job's id, its token (fence and claim id), the outcome
--   then, where the next jobs are wanted too, the arguments of parts/claiming.lua
-- An outcome is a letter and what belongs to it:
--   d  done, [result]     f  failed, fate        c  cancelled, fate
--   r  to be retried: delay, 1 if its priority changes, priority, fate
--   z  put off: delay     b  given back
-- Answers a letter for each (o ok, a again, s stale, ? needs more than this script knows) and the claim, if
-- there is no ? among them.
-- uses: clock bell records many counting claiming
local ATTEMPTS_KEPT = 100
local STATES = { d = 'done', f = 'failed', c = 'cancelled' }
local WORDS = { f = 'fail', r = 'retry' }

local count_of = tonumber(ARGV[2])
local ids, tokens, outcomes = {}, {}, {}
for item = 1, count_of do
  ids[item], tokens[item], outcomes[item] = ARGV[3 * item], ARGV[3 * item + 1], ARGV[3 * item + 2]
end

local records = get_many(root .. 'jobs', ids)
local reserved = {}
if redis.call('EXISTS', root .. 'reserved') == 1 then
  local claims = {}
  for item = 1, count_of do claims[item] = tokens[item] .. ids[item] end
  reserved = get_many(root .. 'reserved', claims)
end

local function answer(item)
  local record = records[item]
  if not record or reserved[item] then return '?' end
  local state, flags, _, _, _, _, _, _, _, _, rest = head(record)
  local at = claim_at(flags, rest)
  if not has(flags, CLAIMED) or sub(record, at, at + 13) ~= tokens[item] then return 's' end
  if state ~= 'x' then return 'a' end
  local kind = sub(outcomes[item], 1, 1)
  if has(flags, SPECIAL) or (kind == 'c' and has(flags, FATE)) then return '?' end
  return 'o'
end

local answers, by_queue, is_slow = {}, {}, false
for item = 1, count_of do
  answers[item] = answer(item)
  if answers[item] == '?' then is_slow = true end
end

local written, topics, rung, expiring = {}, {}, {}, {}
local unrun, unheld, added, minutes, news_of_attempts = {}, {}, {}, {}, {}

local function record_attempt(id, kind, record, at, attempts, generation, fate)
  local started = unpack_('>d', record, at + 28)
  local worker = sub(record, at + 38, after_claim(record, CLAIMED, at) - 1)
  local error_ = string.match(fate, '^{"error":(.*),"reason":') or string.match(fate, '^{"error":(.*)}$')
  news_of_attempts[#news_of_attempts + 1] = { 'attempts:' .. id, string.format(
    '{"generation":%.0f,"attempt":%.0f,"started":%.17g,"ended":%.17g,"worker":%s,"outcome":"%s","error":%s}',
    generation, attempts + 1, started, clock.wall, cjson.encode(worker), WORDS[kind], error_) }
end

-- As core.transitions.settled.
local function settle_one(item, lease)
  local id, outcome, record = ids[item], outcomes[item], records[item]
  local _, flags, seq, priority, created, due, attempts, crashes, generation, queue, rest = head(record)
  local kind, at, member = sub(outcome, 1, 1), claim_at(flags, rest), member_of(seq, id)
  local behind = after_claim(record, flags, at)
  local news_end = after_text(record, has(flags, NEWS), behind)
  local claim = sub(record, at, at + 19) .. pack('>d', lease) .. sub(record, at + 28, news_end - 1)
  local fate_end = after_text(record, has(flags, FATE), news_end)
  local fate, result, finished = sub(record, news_end, fate_end - 1), '', ''
  local letter, given = kind, sub(outcome, 2)
  if kind == 'd' then
    flags, fate = band(flags, bnot(FATE)), ''
    if #given > 0 then flags, result = bor(flags, RESULT), pack('>I', #given - 1) .. sub(given, 2) end
  elseif kind == 'f' or kind == 'c' then
    flags, fate = bor(flags, FATE), pack('>I', #given) .. given
  elseif kind == 'r' then
    local delay, changes, wanted, from = unpack_('>dBh', given)
    given = sub(given, from)
    flags, fate = bor(flags, FATE), pack('>I', #given) .. given
    due, letter = clock.wall + delay, delay > 0 and 's' or 'r'
    if changes == 1 then priority = wanted end
    count_minute(queue, 'retried', 1)
  elseif kind == 'z' then
    local delay = unpack_('>d', given)
    due, letter = clock.wall + delay, delay > 0 and 's' or 'r'
  else
    letter = 'r'
  end
  if WORDS[kind] then record_attempt(id, kind, record, at, attempts, generation, given) end
  if kind == 'd' or kind == 'f' or kind == 'r' then attempts = attempts + 1 end
  local ended = STATES[letter]
  if ended then
    flags, finished = bor(flags, ENDED), pack('>d', clock.wall)
    gather(added, ended .. ':' .. queue, clock.wall, member)
    gather(minutes, queue, ended)
    topics[#topics + 1] = 'job:' .. id
    count(ended, queue, 1)
  elseif letter == 's' then
    gather(added, 'scheduled:' .. queue, due, member)
    count('scheduled', queue, 1)
    if attempts > 0 then count('retrying', queue, 1) end
    rung[queue] = true
  else
    gather(added, 'ready:' .. queue, priority, pack('>d', due) .. member)
    count('ready', queue, 1)
    rung[queue] = true
  end
  if not ended and has(flags, EXPIRES) then
    gather(added, 'expiring', unpack_('>d', record, rest), member)
  end
  count('running', queue, -1)
  gather(unheld, sub(record, at + 38, behind - 1), member)
  written[#written + 1] = id
  written[#written + 1] = letter .. pack('>HI6hddIIIH', flags, seq, priority, created, due, attempts, crashes,
    generation, #queue) .. queue .. sub(record, rest, at - 1) .. claim .. finished .. result .. fate
    .. sub(record, fate_end)
end

-- Whether the end of a run lets another begin.
local function is_limited(queue)
  local row = redis.call('HGET', root .. 'queues', queue)
  if not row or row == '{}' then return false end
  local settings = cjson.decode(row)
  local declared = settings.declared or {}
  return settings.override or declared.concurrency or declared.key_concurrency
end

for item = 1, count_of do
  if answers[item] == 'o' then
    local _, _, seq, _, _, _, _, _, _, queue = head(records[item])
    gather(by_queue, queue, item, member_of(seq, ids[item]))
  end
end
for queue, items in pairs(by_queue) do
  local members = {}
  for at = 2, #items, 2 do members[at / 2] = items[at] end
  local name = root .. 'running:' .. queue
  for at, lease in ipairs(get_many(name, members)) do settle_one(items[2 * at - 1], tonumber(lease)) end
  call_many('HDEL', name, members)
  if is_limited(queue) then rung[queue] = true end
end
call_many('HSET', root .. 'jobs', written)
for worker, members in pairs(unheld) do call_many('SREM', root .. 'held:' .. worker, members) end
for name, members in pairs(added) do
  call_many('ZADD', root .. name, members)
  if sub(name, 1, 6) == 'ready:' then
    redis.call('HSETNX', root .. 'served', sub(name, 7), redis.call('HGET', shard, 'picks') or 0)
  end
end
for _, news in ipairs(news_of_attempts) do
  redis.call('RPUSH', root .. news[1], news[2])
  redis.call('LTRIM', root .. news[1], -ATTEMPTS_KEPT, -1)
end
for queue, ends in pairs(minutes) do
  local totals = {}
  for _, ended in ipairs(ends) do totals[ended] = (totals[ended] or 0) + 1 end
  for ended, by in pairs(totals) do count_minute(queue, ended, by) end
end
write_counts()
for queue in pairs(rung) do topics[#topics + 1] = 'queue:' .. queue end
ring(topics)

local reply = { table.concat(answers) }
if not is_slow and ARGV[3 * count_of + 3] then reply[2] = claim_plain(3 * count_of + 3) end
return reply
