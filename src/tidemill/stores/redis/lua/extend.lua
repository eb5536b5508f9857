-- A worker says what it holds, and has no other news of it.
--   ARGV[2]   worker
--   ARGV[3]   the last claim number whose reply it saw
--   ARGV[4]   lease in seconds
--   ARGV[5]   what is known of it, as JSON
--   ARGV[6]…  of each job: its id, its token, and 1 if its lease is to be renewed
-- Answers the ids it has lost, or 'slow' when one is to be taken back from it.
-- uses: full clock records many
local worker, received, lease = ARGV[2], tonumber(ARGV[3]), clock.boot + tonumber(ARGV[4])
local ids, lost, renewed, listed = {}, {}, {}, {}
local until_ = string.format('%.17g', lease)
for at = 6, #ARGV, 3 do ids[#ids + 1] = ARGV[at] end
local records = get_many(root .. 'jobs', ids)
for item, id in ipairs(ids) do
  local record, is_current = records[item], false
  if record then
    local state, flags, seq, _, _, _, _, _, _, queue, rest = head(record)
    local at = claim_at(flags, rest)
    if state == 'x' and sub(record, at, at + 13) == ARGV[3 * item + 4] then
      is_current = true
      local member = member_of(seq, id)
      listed[member] = true
      if ARGV[3 * item + 5] == '1' then gather(renewed, queue, member, until_) end
    end
  end
  if not is_current then lost[#lost + 1] = id end
end

-- J52: what runs in its name and is not listed was lost on the way, unless its claim is still on the way.
local unlisted = {}
for _, member in ipairs(redis.call('SMEMBERS', root .. 'held:' .. worker)) do
  if not listed[member] then unlisted[#unlisted + 1] = id_of(member) end
end
for _, record in ipairs(get_many(root .. 'jobs', unlisted)) do
  local _, flags, _, _, _, _, _, _, _, _, rest = head(record)
  if unpack_('>I6', record, claim_at(flags, rest) + 14) <= received then return 'slow' end
end

for queue, members in pairs(renewed) do call_many('HSET', root .. 'running:' .. queue, members) end
redis.call('HSET', root .. 'workers', worker,
  string.format('{"seen":%.17g', clock.wall) .. (ARGV[5] == '{}' and '}' or ',' .. sub(ARGV[5], 2)))
redis.call('ZADD', root .. 'alive', lease, worker)
redis.call('HSETNX', root .. 'numbers', worker, 0)
return lost
