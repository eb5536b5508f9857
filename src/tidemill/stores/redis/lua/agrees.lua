-- Whether orders and lists have what the records say, in pieces, while jobs go on.
--   ARGV[2]  the hash of the records: of jobs, flows, schedules or records
--   then of each: its id, the digest of its record ('' when there was none), how many checks,
--   of each check: kind, key, member, what is expected
-- Answers the numbers of the checks that failed, counted through. What has changed since is passed over.
-- uses: root
local checks = {}

-- In that order; at that place of it where one is expected.
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
