-- Checks that indexes hold the entries that records require, in chunks, while jobs run.
--   ARGV[2]  hash of the records: jobs, or documents of one kind
--   then per record: id, digest of the record ('' if there was none), number of checks,
--   per check: kind, key, member, expected value
-- Returns the numbers of the failed checks, counted over all records. A record that has changed is skipped.
-- uses: keys
local checks = {}

-- The member is in the sorted set, with the expected score if one is given.
function checks.order(key, member, expected)
  local score = redis.call('ZSCORE', key, member)
  return score and (expected == '' or tonumber(score) == tonumber(expected))
end

function checks.field(key, field, expected)
  local found = redis.call('HGET', key, field)
  return found and (expected == '' or found == expected)
end

function checks.member(key, member)
  return redis.call('SISMEMBER', key, member) == 1
end

function checks.absent(key, member)
  local is_hash = redis.call('TYPE', key).ok == 'hash'
  return not redis.call(is_hash and 'HGET' or 'ZSCORE', key, member)
end

function checks.gone(key)
  return redis.call('EXISTS', key) == 0
end

local failed, number, at = {}, 0, 3
while ARGV[at] do
  local record = redis.call('HGET', root .. ARGV[2], ARGV[at])
  local same = (record and redis.sha1hex(record) or '') == ARGV[at + 1]
  local count = tonumber(ARGV[at + 2])
  at = at + 3
  for _ = 1, count do
    number = number + 1
    if same and not checks[ARGV[at]](root .. ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]) then
      failed[#failed + 1] = number
    end
    at = at + 4
  end
end
return failed
