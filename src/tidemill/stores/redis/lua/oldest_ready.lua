-- Returns the earliest due time of each lane and priority, for the lanes whose keys are ARGV[2], ARGV[3] …;
-- '' if no job is ready. It reads only the first job of each priority.
-- uses: keys job_record
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
