-- The shard's clocks: `clock.wall` for schedules and calendars, `clock.boot` for leases and windows.
--
-- ARGV[1] says how to read them:
--   given <wall> <boot> <boot id>     by the caller's clock (tests run on virtual time)
--   kept <skew> <expected> <doubt>    by this server's, which may have been stepped. `skew` is 0 but in tests
--                                     of steps; `expected` is what the caller reckons `boot` to be, or -;
--                                     `doubt` how far its own clock may have drifted since it last saw ours.
--
-- boot = wall - shift. Where the server's clock is stepped, shift follows, so that boot goes on as before:
-- an hour's step must neither end every lease nor empty every window. One caller that disagrees is wrong
-- about its own clock (a virtual machine that was halted) if another agreed with ours just now.
-- What is noted here may be refused by a full server: that alone is no reason for the script to end.
-- uses: root
local AHEAD, BEHIND = 5, 2
local AGREE_EVERY, AGREED_WITHIN = 5, 12

local clock = {}

do
  local how, first, second, third = string.match(ARGV[1], '^(%l+) (%S+) (%S+) (.+)$')
  if how == 'given' then
    clock.wall, clock.boot, clock.boot_id = tonumber(first), tonumber(second), third
  else
    local time = redis.call('TIME')
    local expected, doubt = tonumber(second), tonumber(third)
    clock.wall = time[1] + time[2] / 1000000 + first
    local kept = redis.call('HMGET', shard, 'shift', 'agreed')
    local shift, agreed = tonumber(kept[1] or 0), tonumber(kept[2] or -math.huge)
    clock.boot, clock.boot_id = clock.wall - shift, 'server'
    local since = clock.wall - agreed
    local recent = since >= 0 and since < AGREED_WITHIN
    local ahead = expected and clock.boot - expected or 0
    if ahead > AHEAD + doubt or ahead < -(BEHIND + doubt) then
      if recent then
        return redis.error_reply('RECKON the expected time is not the one the others agree on')
      end
      clock.boot = expected
      redis.pcall('HSET', shard, 'shift', string.format('%.6f', clock.wall - expected),
        'agreed', string.format('%.6f', clock.wall))
    elseif expected and (since < 0 or since >= AGREE_EVERY) then
      redis.pcall('HSET', shard, 'agreed', string.format('%.6f', clock.wall))
    end
  end
end
