-- Lists documents of one kind, newest first.
--   ARGV[2]  kind
--   ARGV[3]  index to read
--   ARGV[4]  limit
--   ARGV[5]  creation time of the last document of the previous page, '' for the first page
--   ARGV[6]  id of that document
-- Returns id, row, …
-- uses: keys bulk_commands
local index, limit, created, id = root .. ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]

local function at(rank)
  return redis.call('ZREVRANGE', index, rank, rank)[1]
end

-- Redis orders documents of equal score by the bytes of their ids. Lua's `<` uses the server's locale, so the
-- bytes are compared here; very many documents may share one creation time.
local function is_before(one, other)
  for at_byte = 1, math.min(#one, #other) do
    local mine, its = string.byte(one, at_byte), string.byte(other, at_byte)
    if mine ~= its then return mine < its end
  end
  return #one < #other
end

local from = 0
if created ~= '' then
  from = redis.call('ZCOUNT', index, '(' .. created, '+inf')
  local to = from + redis.call('ZCOUNT', index, created, created)
  while from < to do
    local middle = math.floor((from + to) / 2)
    if is_before(at(middle), id) then to = middle else from = middle + 1 end
  end
end

local ids, found = redis.call('ZREVRANGE', index, from, from + limit - 1), {}
for number, row in ipairs(get_many(root .. 'documents:' .. ARGV[2], ids)) do
  found[2 * number - 1], found[2 * number] = ids[number], row
end
return found
