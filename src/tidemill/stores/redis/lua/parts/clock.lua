-- The clocks of the shard: `clock.wall` for schedules and calendars, `clock.boot` for leases and windows.
--
-- ARGV[1] says how to read them:
--   given <wall> <boot> <boot id>     injected by the caller (tests in virtual time)
--   kept <skew> <expected> <doubt>    the server's clock, which can be stepped. `skew` is 0 except in tests of
--                                     steps; `expected` is the boot time that the caller expects, or -;
--                                     `doubt` is how far the caller's clock may have drifted.
--
-- boot = wall - shift. After a step of the server's clock the shift is adjusted and boot continues: a step of
-- an hour must neither end every lease nor empty every window. If another caller agreed with the server's
-- clock a moment ago, a caller that disagrees has a wrong clock (a suspended virtual machine), and its call
-- is refused. A full server may refuse to store the shift; pcall keeps that from ending the script.
-- uses: keys
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
        return redis.error_reply('CLOCKSKEW the expected time differs from the time that other callers agreed on')
      end
      clock.boot = expected
      redis.pcall('HSET', shard, 'shift', string.format('%.6f', clock.wall - expected),
        'agreed', string.format('%.6f', clock.wall))
    elseif expected and (since < 0 or since >= AGREE_EVERY) then
      redis.pcall('HSET', shard, 'agreed', string.format('%.6f', clock.wall))
    end
  end
end
