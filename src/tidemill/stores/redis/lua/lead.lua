-- Who leads duties, each for as long as its lease runs, and what waits to be done.
--   ARGV[2]   worker
--   ARGV[3]   lease in seconds
--   ARGV[4]…  duties
-- Answers wall, boot, how many arrivals wait, in how many seconds a flow and a schedule wait to be advanced ('' when none
-- will); then of each duty '' if it is the worker's from now on, else in how many seconds it is free.
-- uses: full clock
local function exact(number) return string.format('%.17g', number) end

local function due(kind)
  if redis.call('EXISTS', root .. 'stirred:' .. kind) == 1 then return '0' end
  local first = redis.call('ZRANGE', root .. 'dues:' .. kind, 0, 0, 'WITHSCORES')[2]
  return first and exact(math.max(0, tonumber(first) - clock.wall)) or ''
end

local reply = { exact(clock.wall), exact(clock.boot), redis.call('XLEN', root .. 'arrivals'), due('flow'), due('schedule') }
local lease = '{"worker":' .. cjson.encode(ARGV[2]) .. ',"lease":' .. exact(clock.boot + tonumber(ARGV[3])) .. '}'
for at = 4, #ARGV do
  local known = redis.call('HGET', root .. 'leaders', ARGV[at])
  local leader = known and cjson.decode(known)
  if leader and leader.worker ~= ARGV[2] and leader.lease > clock.boot then
    reply[at + 2] = exact(leader.lease - clock.boot)
  else
    redis.call('HSET', root .. 'leaders', ARGV[at], lease)
    reply[at + 2] = ''
  end
end
return reply
