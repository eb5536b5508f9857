-- Deletes ended jobs by their queue's retention, oldest first.
--   ARGV[2]  limit
--   ARGV[3]  seconds for which ids of deleted jobs are kept
--   then per index: queue, state, maximum age in seconds, maximum number of jobs; '' for no limit
-- Returns the number of deleted jobs, 1 if more can be deleted now, then queue and count for each queue that
-- lost jobs to its maximum number before their maximum age. A job whose unique key is still held stays, and
-- there may be many. To stay short, a call skips only some of them per index, and the next call continues
-- after them (hash `prune_offsets`). The bytes read are limited as well.
-- uses: out_of_memory clock job_record bulk_commands
local CHUNK_JOBS, MAX_SKIPPED = 250, 500
local limit, id_retention = tonumber(ARGV[2]), tonumber(ARGV[3])
local boot_id = clock.boot_id
local expiry = pack('>dd', clock.wall + id_retention, clock.boot + id_retention) .. pack('>H', #boot_id) .. boot_id
local NO_TOKEN = string.rep('\0', 14)

local deleted_jobs, left, early = 0, MAX_BYTES, {}
local deleted, known_ids, id_expiries, pages, detail_keys, unique_members = {}, {}, {}, {}, {}, {}

local function is_enough()
  return deleted_jobs >= limit or left <= 0
end

-- Notes everything to delete for one job; false if its unique key is still held.
local function collect_job(member, record)
  local _, flags, seq, _, _, _, _, _, _, queue, rest = head(record)
  local held = has_flag(flags, EXPIRES) and rest + 8 or rest
  if has_flag(flags, HOLDS) and unpack_('>d', record, held) > clock.wall then return false end
  local id, at = id_of(member), claim_at(flags, rest)
  if has_flag(flags, HOLDS) then append_to(unique_members, unique_key(queue, optional_fields(record, flags, rest).unique_key), member) end
  deleted[#deleted + 1] = id
  known_ids[#known_ids + 1] = id
  known_ids[#known_ids + 1] = 'a' .. (has_flag(flags, CLAIMED) and sub(record, at, at + 13) or NO_TOKEN) .. expiry
  id_expiries[#id_expiries + 1] = clock.wall + id_retention
  id_expiries[#id_expiries + 1] = id
  append_to(pages, math.floor(seq / 100), seq % 100)
  for _, kind in ipairs({ 'attempts:', 'checkpoints:', 'logs:' }) do detail_keys[#detail_keys + 1] = root .. kind .. id end
  return true
end

-- Returns the members of an index to delete, and how many the next call skips.
local function select_jobs(queue, key, age, keep, before)
  local surplus = keep == '' and 0 or math.max(0, redis.call('ZCARD', key) - tonumber(keep))
  local oldest_kept = age == '' and -math.huge or clock.wall - tonumber(age)
  local from, skipped, found = before, before, {}
  while not is_enough() and skipped - before < MAX_SKIPPED do
    local members = redis.call('ZRANGE', key, from, from + CHUNK_JOBS - 1, 'WITHSCORES')
    local ids = {}
    for at = 1, #members, 2 do ids[#ids + 1] = id_of(members[at]) end
    local records, count
    records, count, left = get_some(root .. 'jobs', ids, left)
    for at = 1, count do
      local is_young = tonumber(members[2 * at]) > oldest_kept
      if is_young and #found >= surplus then return found, 0 end
      if deleted_jobs >= limit then return found, before end
      if collect_job(members[2 * at - 1], records[at]) then
        found[#found + 1] = members[2 * at - 1]
        deleted_jobs = deleted_jobs + 1
        if is_young and age ~= '' then early[queue] = (early[queue] or 0) + 1 end
      else
        skipped = skipped + 1
      end
    end
    if count == #ids and #ids < CHUNK_JOBS then return found, 0 end
    from = from + CHUNK_JOBS
  end
  return found, deleted_jobs < limit and skipped or before
end

local function prune_index(queue, state, age, keep)
  local index = state .. ':' .. queue
  local before = tonumber(redis.call('HGET', root .. 'prune_offsets', index) or 0)
  local found, skipped = select_jobs(queue, root .. index, age, keep, before)
  call_many('ZREM', root .. index, found)
  if #found > 0 then redis.call('HINCRBY', root .. 'counts', index, -#found) end
  if skipped > 0 then
    redis.call('HSET', root .. 'prune_offsets', index, skipped)
  elseif before > 0 then
    redis.call('HDEL', root .. 'prune_offsets', index)
  end
end

for at = 4, #ARGV, 4 do
  if not is_enough() then prune_index(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]) end
end
if deleted_jobs == 0 then return { 0, 0 } end

for at = 3, #detail_keys, 3 do
  for _, attempt in ipairs(redis.call('SMEMBERS', detail_keys[at])) do
    redis.call('DEL', root .. 'log_lines:' .. attempt .. ':' .. deleted[at / 3])
  end
end
for from = 1, #detail_keys, MAX_ARGUMENTS do
  redis.call('DEL', unpack(detail_keys, from, math.min(from + MAX_ARGUMENTS - 1, #detail_keys)))
end
call_many('HDEL', root .. 'jobs', deleted)
for key, members in pairs(unique_members) do call_many('ZREM', root .. key, members) end
-- The last page stays, because new jobs are added to it.
local last_page = math.floor(tonumber(redis.call('HGET', shard, 'seq')) / 100)
for page, seqs in pairs(pages) do
  local name = string.format('%.0f', page)
  call_many('HDEL', root .. 'page:' .. name, seqs)
  if page < last_page and redis.call('EXISTS', root .. 'page:' .. name) == 0 then
    redis.call('ZREM', root .. 'pages', name)
  end
end
call_many('HSET', root .. 'known_ids', known_ids)
call_many('ZADD', root .. 'known_ids_expiry', id_expiries)
local answer = { deleted_jobs, is_enough() and 1 or 0 }
local minute = string.format('%.0f', math.floor(clock.wall / 60) * 60)
for queue, jobs in pairs(early) do
  local field = minute .. ':dropped_early'
  redis.call('HINCRBY', root .. 'history:' .. queue, field, jobs)
  redis.call('ZADD', root .. 'history_minutes', minute, 'history:' .. queue .. ' ' .. field)
  answer[#answer + 1] = queue
  answer[#answer + 1] = jobs
end
return answer
