-- A worker says what it holds, and has no other news of it. It takes the first of the jobs, as many as one step may
-- take on; the worker is seen to with the last of them.
--   ARGV[2]   worker
--   ARGV[3]   the last claim number whose reply it saw
--   ARGV[4]   lease in seconds
--   ARGV[5]   what is known of it, as JSON
--   ARGV[6]   how many jobs, then of the first AT_MOST of them its id, its token, and 1 if its lease is to be renewed
--   then, where these are all, the ids of those it holds too and that were seen to before
-- Answers how many it took and the ids it has lost, or 'slow' when one is to be taken back from it.
-- uses: full clock records many
local AT_MOST = 1000
local worker, received, lease = ARGV[2], tonumber(ARGV[3]), clock.boot + tonumber(ARGV[4])
local ids, renewed, listed = {}, {}, {}
local until_, given = string.format('%.17g', lease), tonumber(ARGV[6])
for item = 1, math.min(given, AT_MOST) do ids[item] = ARGV[3 * item + 4] end
local records, items = get_some(root .. 'jobs', ids)
local answer = { items }
for item = 1, items do
  local id, record, is_current = ids[item], records[item], false
  if record then
    local state, flags, seq, _, _, _, _, _, _, queue, rest = head(record)
    local at = claim_at(flags, rest)
    if state == 'x' and sub(record, at, at + 13) == ARGV[3 * item + 5] then
      is_current = true
      listed[id] = true
      if ARGV[3 * item + 6] == '1' then gather(renewed, queue, member_of(seq, id), until_) end
    end
  end
  if not is_current then answer[#answer + 1] = id end
end
local function renew()
  for queue, members in pairs(renewed) do call_many('HSET', root .. 'running:' .. queue, members) end
end
if items < given then
  renew()
  return answer
end

-- J52: what runs in its name and is not listed was lost on the way, unless its claim is still on the way.
local unlisted = {}
for at = 3 * given + 7, #ARGV do listed[ARGV[at]] = true end
for _, member in ipairs(redis.call('SMEMBERS', root .. 'held:' .. worker)) do
  if not listed[id_of(member)] then unlisted[#unlisted + 1] = id_of(member) end
end
for _, record in ipairs(get_many(root .. 'jobs', unlisted)) do
  local _, flags, _, _, _, _, _, _, _, _, rest = head(record)
  if unpack_('>I6', record, claim_at(flags, rest) + 14) <= received then return 'slow' end
end

renew()
redis.call('HSET', root .. 'workers', worker,
  string.format('{"seen":%.17g', clock.wall) .. (ARGV[5] == '{}' and '}' or ',' .. sub(ARGV[5], 2)))
redis.call('ZADD', root .. 'alive', lease, worker)
redis.call('HSETNX', root .. 'numbers', worker, 0)
return answer
