-- Since when the job that waits longest could have started, of the lanes whose keys are ARGV[2], ARGV[3] …
-- Answers the earliest due of each lane and priority, '' when nothing is ready; the jobs between are passed over.
-- uses: root records
local oldest
for at = 2, #ARGV do
  local lane = root .. ARGV[at]
  local first = redis.call('ZRANGE', lane, 0, 0, 'WITHSCORES')
  while first[1] do
    local due = unpack_('>d', first[1])
    if not oldest or due < oldest then oldest = due end
    first = redis.call('ZRANGEBYSCORE', lane, '(' .. first[2], '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  end
end
return oldest and string.format('%.17g', oldest) or ''
