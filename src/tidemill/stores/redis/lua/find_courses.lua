-- Flows or schedules in the order they began, newest first.
--   ARGV[2]  kind
--   ARGV[3]  the order they are listed in
--   ARGV[4]  how many at most
--   ARGV[5]  behind the one that began then, '' from the newest on
--   ARGV[6]  and has that id
-- Answers id, row, …
-- uses: root many
local order, limit, created, id = root .. ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]

local function at(rank)
  return redis.call('ZREVRANGE', order, rank, rank)[1]
end

-- Very many may have begun at the same instant; Redis has these in the order of their ids' bytes, and so must
-- be compared here: a server may run in a language with an order of its own.
local function is_before(one, other)
  for place = 1, math.min(#one, #other) do
    local mine, its = string.byte(one, place), string.byte(other, place)
    if mine ~= its then return mine < its end
  end
  return #one < #other
end

local from = 0
if created ~= '' then
  from = redis.call('ZCOUNT', order, '(' .. created, '+inf')
  local to = from + redis.call('ZCOUNT', order, created, created)
  while from < to do
    local middle = math.floor((from + to) / 2)
    if is_before(at(middle), id) then to = middle else from = middle + 1 end
  end
end

local ids, found = redis.call('ZREVRANGE', order, from, from + limit - 1), {}
for place, row in ipairs(get_many(root .. 'courses:' .. ARGV[2], ids)) do
  found[2 * place - 1], found[2 * place] = ids[place], row
end
return found
