-- Reads the history of a queue by minute.
--   ARGV[2]  hash of the counts
--   ARGV[3]  first minute
--   ARGV[4]  number of minutes up to which they are read one by one
--   ARGV[5]…  names of the counts
-- Returns one row per minute with any count: its start and the counts. '?' if there are more minutes; the
-- caller then reads the whole hash.
-- uses: keys
local key, first, most = root .. ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local newest = tonumber(redis.call('ZREVRANGE', root .. 'history_minutes', 0, 0, 'WITHSCORES')[2])
if not newest or newest < first then return '' end
if (newest - first) / 60 > most then return '?' end

local MINUTES_PER_COMMAND = 500
local lines, wide = {}, #ARGV - 4
for from = first, newest, MINUTES_PER_COMMAND * 60 do
  local names = {}
  local to = math.min(newest, from + (MINUTES_PER_COMMAND - 1) * 60)
  for minute = from, to, 60 do
    local at = string.format('%.0f', minute)
    for number = 5, #ARGV do names[#names + 1] = at .. ':' .. ARGV[number] end
  end
  local counts = redis.call('HMGET', key, unpack(names))
  for minute = from, to, 60 do
    local start, is_quiet = (minute - from) / 60 * wide, true
    local line = { string.format('%.0f', minute) }
    for number = 1, wide do
      local count = counts[start + number]
      line[number + 1] = count or '0'
      is_quiet = is_quiet and not count
    end
    if not is_quiet then lines[#lines + 1] = table.concat(line, ' ') end
  end
end
return table.concat(lines, '\n')
