-- Some accounts of a pool and everything that is reserved, as of one instant.
--   ARGV[2]   the pool
--   ARGV[3]…  the keys of the accounts
-- Answers {account, …}, {claim, reserved, …}, {claim, …}, {place, how many, …}: the third are of jobs that do not
-- run with them, the last is how many reservations are counted at each place.
-- uses: root records many
local keys = {}
for at = 3, #ARGV do keys[#keys + 1] = ARGV[at] end

local function runs(claim)
  local record = redis.call('HGET', root .. 'jobs', sub(claim, 15))
  if not record or sub(record, 1, 1) ~= 'x' then return false end
  local _, flags, _, _, _, _, _, _, _, _, rest = head(record)
  local at = claim_at(flags, rest)
  return sub(record, at, at + 13) == sub(claim, 1, 14)
end

local reserved, ownerless = redis.call('HGETALL', root .. 'reserved'), {}
for at = 1, #reserved, 2 do
  local claim = reserved[at]
  if not runs(claim) and redis.call('HEXISTS', root .. 'left', claim) == 0 then
    ownerless[#ownerless + 1] = claim
  end
end
local counted = redis.call('HGETALL', root .. 'reserved_at')
return { get_many(root .. 'accounts:' .. ARGV[2], keys), reserved, ownerless, counted }
