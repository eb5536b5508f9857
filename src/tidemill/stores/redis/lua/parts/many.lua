-- Commands with any number of arguments: Lua can hand over about 8 000 at once.
local AT_ONCE = 4000

local function call_many(command, key, arguments)
  for from = 1, #arguments, AT_ONCE do
    redis.call(command, key, unpack(arguments, from, math.min(from + AT_ONCE - 1, #arguments)))
  end
end

-- One value per field, false for one that is not there.
local function get_many(key, fields)
  if #fields <= AT_ONCE then
    return #fields > 0 and redis.call('HMGET', key, unpack(fields)) or {}
  end
  local found = {}
  for from = 1, #fields, AT_ONCE do
    local to = math.min(from + AT_ONCE - 1, #fields)
    local values = redis.call('HMGET', key, unpack(fields, from, to))
    for at = 1, to - from + 1 do found[from + at - 1] = values[at] end
  end
  return found
end

-- Tables of arguments by key, for one command each.
local function gather(by_key, key, first, second)
  local found = by_key[key]
  if not found then
    found = {}
    by_key[key] = found
  end
  found[#found + 1] = first
  if second ~= nil then found[#found + 1] = second end
end
