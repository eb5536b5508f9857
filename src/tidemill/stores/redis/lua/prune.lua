-- Ended jobs leave by their queue's retention, oldest ended first.
--   ARGV[2]  how many at most
--   ARGV[3]  how many seconds their ids are remembered
--   then of each shelf: its queue, its state, the age in seconds and the number to be kept, '' for any
-- Answers how many left, 1 if more may leave at once, and of each queue that lost jobs by count before their age
-- was over its name and how many.
-- A job whose key is still held stays, and there may be very many of them. So that nobody waits for this, it looks
-- at some of each shelf only, and goes on behind them the next time (hash `passed`). Nor are more records read than
-- one step may take on.
-- uses: full clock records many
local CHUNK, PASSED = 250, 500
local limit, memory = tonumber(ARGV[2]), tonumber(ARGV[3])
local boot_id = clock.boot_id
local term = pack('>dd', clock.wall + memory, clock.boot + memory) .. pack('>H', #boot_id) .. boot_id
local NOBODY = string.rep('\0', 14)

local dropped, left, early = 0, BYTES, {}
local gone, remembered, forgotten, pages, details, keys = {}, {}, {}, {}, {}, {}

local function is_enough()
  return dropped >= limit or left <= 0
end

-- What a job that is gone leaves behind; nothing where its key is still held.
local function leave(member, record)
  local _, flags, seq, _, _, _, _, _, _, queue, rest = head(record)
  local held = has(flags, EXPIRES) and rest + 8 or rest
  if has(flags, HOLDS) and unpack_('>d', record, held) > clock.wall then return false end
  local id, at = id_of(member), claim_at(flags, rest)
  if has(flags, HOLDS) then gather(keys, unique_key(queue, more_of(record, flags, rest).unique_key), member) end
  gone[#gone + 1] = id
  remembered[#remembered + 1] = id
  remembered[#remembered + 1] = 'a' .. (has(flags, CLAIMED) and sub(record, at, at + 13) or NOBODY) .. term
  forgotten[#forgotten + 1] = clock.wall + memory
  forgotten[#forgotten + 1] = id
  gather(pages, math.floor(seq / 100), seq % 100)
  for _, kind in ipairs({ 'attempts:', 'steps:', 'logs:' }) do details[#details + 1] = root .. kind .. id end
  return true
end

-- Answers those of a shelf that leave, and how many are passed over the next time.
local function leaving(queue, key, age, keep, before)
  local surplus = keep == '' and 0 or math.max(0, redis.call('ZCARD', key) - tonumber(keep))
  local oldest_kept = age == '' and -math.huge or clock.wall - tonumber(age)
  local from, passed, found = before, before, {}
  while not is_enough() and passed - before < PASSED do
    local members = redis.call('ZRANGE', key, from, from + CHUNK - 1, 'WITHSCORES')
    local ids = {}
    for at = 1, #members, 2 do ids[#ids + 1] = id_of(members[at]) end
    local records, count
    records, count, left = get_some(root .. 'jobs', ids, left)
    for at = 1, count do
      local is_young = tonumber(members[2 * at]) > oldest_kept
      if is_young and #found >= surplus then return found, 0 end
      if dropped >= limit then return found, before end
      if leave(members[2 * at - 1], records[at]) then
        found[#found + 1] = members[2 * at - 1]
        dropped = dropped + 1
        if is_young and age ~= '' then early[queue] = (early[queue] or 0) + 1 end
      else
        passed = passed + 1
      end
    end
    if count == #ids and #ids < CHUNK then return found, 0 end
    from = from + CHUNK
  end
  return found, dropped < limit and passed or before
end

local function clear(queue, state, age, keep)
  local shelf = state .. ':' .. queue
  local before = tonumber(redis.call('HGET', root .. 'passed', shelf) or 0)
  local found, passed = leaving(queue, root .. shelf, age, keep, before)
  call_many('ZREM', root .. shelf, found)
  if #found > 0 then redis.call('HINCRBY', root .. 'counts', shelf, -#found) end
  if passed > 0 then
    redis.call('HSET', root .. 'passed', shelf, passed)
  elseif before > 0 then
    redis.call('HDEL', root .. 'passed', shelf)
  end
end

for at = 4, #ARGV, 4 do
  if not is_enough() then clear(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]) end
end
if dropped == 0 then return { 0, 0 } end

for at = 3, #details, 3 do
  for _, attempt in ipairs(redis.call('SMEMBERS', details[at])) do
    redis.call('DEL', root .. 'lines:' .. attempt .. ':' .. gone[at / 3])
  end
end
for from = 1, #details, AT_ONCE do
  redis.call('DEL', unpack(details, from, math.min(from + AT_ONCE - 1, #details)))
end
call_many('HDEL', root .. 'jobs', gone)
for key, members in pairs(keys) do call_many('ZREM', root .. key, members) end
-- A page on which jobs are still to come stays.
local last_page = math.floor(tonumber(redis.call('HGET', shard, 'seq')) / 100)
for page, places in pairs(pages) do
  local name = string.format('%.0f', page)
  call_many('HDEL', root .. 'page:' .. name, places)
  if page < last_page and redis.call('EXISTS', root .. 'page:' .. name) == 0 then
    redis.call('ZREM', root .. 'pages', name)
  end
end
call_many('HSET', root .. 'remembered', remembered)
call_many('ZADD', root .. 'forget', forgotten)
local answer = { dropped, is_enough() and 1 or 0 }
local minute = string.format('%.0f', math.floor(clock.wall / 60) * 60)
for queue, jobs in pairs(early) do
  local field = minute .. ':dropped_early'
  redis.call('HINCRBY', root .. 'history:' .. queue, field, jobs)
  redis.call('ZADD', root .. 'minutes', minute, 'history:' .. queue .. ' ' .. field)
  answer[#answer + 1] = queue
  answer[#answer + 1] = jobs
end
return answer
