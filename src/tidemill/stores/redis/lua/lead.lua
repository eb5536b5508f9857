-- Who leads a duty, for as long as its lease runs.
--   ARGV[2]  duty
--   ARGV[3]  worker
--   ARGV[4]  lease in seconds
-- Answers 1 if the worker leads from now on, 0 if another does.
-- uses: full clock
local known = redis.call('HGET', root .. 'leaders', ARGV[2])
if known then
  local leader = cjson.decode(known)
  if leader.worker ~= ARGV[3] and leader.lease > clock.boot then return 0 end
end
local lease = string.format('%.17g', clock.boot + tonumber(ARGV[4]))
redis.call('HSET', root .. 'leaders', ARGV[2], '{"worker":' .. cjson.encode(ARGV[3]) .. ',"lease":' .. lease .. '}')
return 1
