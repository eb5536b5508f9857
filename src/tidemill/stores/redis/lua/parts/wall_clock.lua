-- Only the wall clock, for scripts that use no leases or windows; ARGV[1] as in parts/clock.lua.
-- uses: keys
local wall
do
  local how, first = string.match(ARGV[1], '^(%l+) (%S+)')
  if how == 'given' then
    wall = tonumber(first)
  else
    local time = redis.call('TIME')
    wall = time[1] + time[2] / 1000000 + first
  end
end
