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

-- Values of the first fields, as many as one step may take on, how many these are, and what is left of `bytes`.
-- Copying is what large records cost, 2 ms for each megabyte. How many are read together is guessed from the
-- largest before them.
local BYTES, SOME = 1024 * 1024, 16

local function get_some(key, fields, bytes)
  local found, count, left, largest = {}, 0, bytes or BYTES, BYTES
  while count < #fields and left > 0 do
    local to = math.min(count + math.max(1, math.min(SOME, math.floor(left / largest))), #fields)
    local values = redis.call('HMGET', key, unpack(fields, count + 1, to))
    if count == 0 then largest = 1 end
    for at = 1, to - count do
      local size = values[at] and #values[at] or 0
      found[count + at] = values[at]
      left, largest = left - size, math.max(largest, size)
    end
    count = to
  end
  return found, count, left
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
