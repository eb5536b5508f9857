-- Extends the leases of a worker's jobs, for a heartbeat without progress reports. It handles the first jobs,
-- up to the limits of one script. The call that handles the last job also renews the worker's lease.
--   ARGV[2]   worker
--   ARGV[3]   last claim number whose reply the worker has received
--   ARGV[4]   lease in seconds
--   ARGV[5]   description of the worker, as JSON
--   ARGV[6]   number of jobs, then for the first MAX_JOBS of them: id, token, 1 if the lease is to be renewed
--   then, in the last call, the ids of the jobs that earlier calls extended
-- Returns the number of handled jobs and the ids of lost jobs, or 'engine' if a job must be taken from the
-- worker.
-- uses: out_of_memory clock job_record bulk_commands
local MAX_JOBS = 1000
local worker, received, lease = ARGV[2], tonumber(ARGV[3]), clock.boot + tonumber(ARGV[4])
local ids, renewed, listed = {}, {}, {}
local lease_text, given = string.format('%.17g', lease), tonumber(ARGV[6])
for item = 1, math.min(given, MAX_JOBS) do ids[item] = ARGV[3 * item + 4] end
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
      if ARGV[3 * item + 6] == '1' then append_to(renewed, queue, member_of(seq, id), lease_text) end
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

-- J52: a running job that the worker does not list was lost in transit, unless its claim is still in transit.
local unlisted = {}
for at = 3 * given + 7, #ARGV do listed[ARGV[at]] = true end
for _, member in ipairs(redis.call('SMEMBERS', root .. 'held:' .. worker)) do
  if not listed[id_of(member)] then unlisted[#unlisted + 1] = id_of(member) end
end
for _, record in ipairs(get_many(root .. 'jobs', unlisted)) do
  local _, flags, _, _, _, _, _, _, _, _, rest = head(record)
  if unpack_('>I6', record, claim_at(flags, rest) + 14) <= received then return 'engine' end
end

renew()
redis.call('HSET', root .. 'workers', worker,
  string.format('{"seen":%.17g', clock.wall) .. (ARGV[5] == '{}' and '}' or ',' .. sub(ARGV[5], 2)))
redis.call('ZADD', root .. 'worker_leases', lease, worker)
redis.call('HSETNX', root .. 'claim_numbers', worker, 0)
return answer
