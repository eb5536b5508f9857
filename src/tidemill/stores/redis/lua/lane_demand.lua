-- Counts the ready jobs of lanes by priority, with the first ids of each.
--   ARGV[2]   ids per priority
--   ARGV[3]   ids after which the reply may stop
--   ARGV[4]…  keys of lanes
-- Returns per lane a list of priority, count, ids, priority, count, ids … The reply may stop early.
-- uses: keys job_record
local sample, enough = tonumber(ARGV[2]), tonumber(ARGV[3])
local found, given = {}, 0
for at = 4, #ARGV do
  if given >= enough then return found end
  local lane, of_lane = root .. ARGV[at], {}
  local first = redis.call('ZRANGE', lane, 0, 0, 'WITHSCORES')
  while first[1] do
    local priority, ids = first[2], {}
    local members = redis.call('ZRANGEBYSCORE', lane, priority, priority, 'LIMIT', 0, sample)
    for place, member in ipairs(members) do ids[place] = sub(member, 15) end
    of_lane[#of_lane + 1] = priority
    of_lane[#of_lane + 1] = redis.call('ZCOUNT', lane, priority, priority)
    of_lane[#of_lane + 1] = ids
    given = given + #ids
    first = redis.call('ZRANGEBYSCORE', lane, '(' .. priority, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  end
  found[#found + 1] = of_lane
end
return found
