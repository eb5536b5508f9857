-- Deletes outdated rows: ids of deleted jobs, history, claims that were never settled, workers.
--   ARGV[2]  limit per kind
--   ARGV[3]  first minute of history to keep
--   ARGV[4]  seconds after which a silent worker and an unsettled claim are deleted
-- Returns the number of deleted ids.
-- uses: clock job_record bulk_commands
local limit, oldest, max_silence = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

-- An id expires when both clocks agree; after a reboot only the wall clock counts.
local function has_expired(text)
  local _, boot, boot_id = unpack_('>ddHc0', text, 16)
  return boot_id ~= clock.boot_id or clock.boot >= boot
end

local candidates = redis.call('ZRANGEBYSCORE', root .. 'known_ids_expiry', '-inf', clock.wall, 'LIMIT', 0, limit)
local ids = {}
for at, text in ipairs(get_many(root .. 'known_ids', candidates)) do
  if not text or has_expired(text) then ids[#ids + 1] = candidates[at] end
end
call_many('HDEL', root .. 'known_ids', ids)
call_many('ZREM', root .. 'known_ids_expiry', ids)

local minutes = redis.call('ZRANGEBYSCORE', root .. 'history_minutes', '-inf', '(' .. oldest, 'LIMIT', 0, limit)
for _, member in ipairs(minutes) do
  local key, field = string.match(member, '^(.*) (%d+:.*)$')
  redis.call('HDEL', root .. key, field)
end
call_many('ZREM', root .. 'history_minutes', minutes)

redis.call('ZREMRANGEBYSCORE', root .. 'unconfirmed_units', '-inf', clock.wall - max_silence)

local silent = redis.call('ZRANGEBYSCORE', root .. 'worker_leases', '-inf', '(' .. string.format('%.17g', clock.boot - max_silence))
for _, worker in ipairs(silent) do
  if redis.call('EXISTS', root .. 'held:' .. worker) == 0 then
    redis.call('HDEL', root .. 'workers', worker)
    redis.call('HDEL', root .. 'claim_numbers', worker)
    redis.call('ZREM', root .. 'worker_leases', worker)
  end
end
return #ids
