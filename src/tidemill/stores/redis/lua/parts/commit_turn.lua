-- Turns for transactions that change the same rows: one after the other is faster than all at once. A
-- transaction that lost once takes the turn (the key `commit_turn`) for a moment, and the others wait. Turns
-- only save work: the checks of commit.lua alone keep the data correct.
-- uses: keys
local TURN_MILLISECONDS = 250 -- the longest wait for a holder that was killed

-- True if another transaction has the turn. A name that begins with '!' takes the turn.
local function is_others_turn(name)
  local holder = redis.call('GET', root .. 'commit_turn')
  if holder and holder ~= name then return true end
  if string.sub(name, 1, 1) == '!' then redis.pcall('SET', root .. 'commit_turn', name, 'PX', TURN_MILLISECONDS) end
  return false
end

local function end_turn(name)
  if redis.call('GET', root .. 'commit_turn') == name then redis.call('DEL', root .. 'commit_turn') end
end
