-- What a queue did minute by minute.
--   ARGV[2]  the hash it is counted in
--   ARGV[3]  from which minute on
--   ARGV[4]  how many minutes are worth asking for one by one
--   ARGV[5]  … what is counted
-- Answers a line for each minute in which something was: when it began, and the counts. '?' when there are more
-- minutes than that; whoever wants them reads the hash.
-- uses: root
local key, first, most = root .. ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local newest = tonumber(redis.call('ZREVRANGE', root .. 'minutes', 0, 0, 'WITHSCORES')[2])
if not newest or newest < first then return '' end
if (newest - first) / 60 > most then return '?' end

local AT_ONCE = 500
local lines, wide = {}, #ARGV - 4
for from = first, newest, AT_ONCE * 60 do
  local names = {}
  local to = math.min(newest, from + (AT_ONCE - 1) * 60)
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
