-- Takes or renews the leadership of roles, and tells what maintenance is due.
--   ARGV[2]   worker
--   ARGV[3]   lease in seconds
--   ARGV[4]…  roles
-- Returns wall, boot, the number of arrivals, and the seconds until a flow and a schedule are due ('' if
-- none); then per role '' if the worker leads it now, otherwise the seconds until its lease ends.
-- uses: out_of_memory clock
local function exact(number) return string.format('%.17g', number) end

local function due(kind)
  if redis.call('EXISTS', root .. 'marked_documents:' .. kind) == 1 then return '0' end
  local first = redis.call('ZRANGE', root .. 'due_documents:' .. kind, 0, 0, 'WITHSCORES')[2]
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
