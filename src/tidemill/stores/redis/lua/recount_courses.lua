-- How many flows, schedules or records are counted and listed, as of one instant.
--   ARGV[2]  kind
-- Answers what, counted, found …
-- uses: root records
local kind, found, sum = ARGV[2], {}, 0

local function listed(state)
  return redis.call('ZCARD', root .. 'listed:' .. kind .. ':' .. both(state, ''))
end

local counts = redis.call('HGETALL', root .. 'course_counts:' .. kind)
for at = 1, #counts, 2 do
  sum = sum + counts[at + 1]
  found[#found + 1] = counts[at]
  found[#found + 1] = tonumber(counts[at + 1])
  found[#found + 1] = listed(counts[at])
end
local there = redis.call('HLEN', root .. 'courses:' .. kind)
for what, counted in pairs({ ['in all'] = sum, ['in the list'] = listed('') }) do
  found[#found + 1] = what
  found[#found + 1] = counted
  found[#found + 1] = there
end
return found
