-- Reads some accounts of a pool and all reservations, in one snapshot.
--   ARGV[2]   pool
--   ARGV[3]…  keys of the accounts
-- Returns {account, …}, {claim, reservations, …}, {claim, …}, {account name, count, …}. The third list holds
-- claims whose jobs do not run; the last one holds the counters of open reservations.
-- uses: keys job_record bulk_commands
local keys = {}
for at = 3, #ARGV do keys[#keys + 1] = ARGV[at] end

local function runs(claim)
  local record = redis.call('HGET', root .. 'jobs', sub(claim, 15))
  if not record or sub(record, 1, 1) ~= 'x' then return false end
  local _, flags, _, _, _, _, _, _, _, _, rest = head(record)
  local at = claim_at(flags, rest)
  return sub(record, at, at + 13) == sub(claim, 1, 14)
end

local reserved, ownerless = redis.call('HGETALL', root .. 'reservations'), {}
for at = 1, #reserved, 2 do
  local claim = reserved[at]
  if not runs(claim) and redis.call('HEXISTS', root .. 'abandoned_units', claim) == 0 then
    ownerless[#ownerless + 1] = claim
  end
end
local counted = redis.call('HGETALL', root .. 'open_reservations')
return { get_many(root .. 'accounts:' .. ARGV[2], keys), reserved, ownerless, counted }
