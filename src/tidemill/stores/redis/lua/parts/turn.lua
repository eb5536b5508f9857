-- Where several steps want the same rows, one after the other is faster than all at once: who was overtaken once
-- takes the turn (the key `turn`, for a moment), and others wait while somebody has it. It is a courtesy: what
-- is true is decided by the checks of commit.lua alone.
-- uses: root
local TURN_LASTS = 250 -- milliseconds: a holder that was killed is not waited for any longer

-- Whether somebody else has it. `me` is the step; one that begins with '!' takes it.
local function is_others_turn(me)
  local holder = redis.call('GET', root .. 'turn')
  if holder and holder ~= me then return true end
  if string.sub(me, 1, 1) == '!' then redis.pcall('SET', root .. 'turn', me, 'PX', TURN_LASTS) end
  return false
end

local function end_turn(me)
  if redis.call('GET', root .. 'turn') == me then redis.call('DEL', root .. 'turn') end
end
