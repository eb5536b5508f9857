-- Commands with any number of arguments. Lua can pass about 8 000 in one call.
local MAX_ARGUMENTS = 4000

local function call_many(command, key, arguments)
  for from = 1, #arguments, MAX_ARGUMENTS do
    redis.call(command, key, unpack(arguments, from, math.min(from + MAX_ARGUMENTS - 1, #arguments)))
  end
end

-- Returns one value per field, false for a missing one.
local function get_many(key, fields)
  if #fields <= MAX_ARGUMENTS then
    return #fields > 0 and redis.call('HMGET', key, unpack(fields)) or {}
  end
  local found = {}
  for from = 1, #fields, MAX_ARGUMENTS do
    local to = math.min(from + MAX_ARGUMENTS - 1, #fields)
    local values = redis.call('HMGET', key, unpack(fields, from, to))
    for at = 1, to - from + 1 do found[from + at - 1] = values[at] end
  end
  return found
end

-- Reads the first fields, up to `bytes`; returns the values, their number, and the bytes left. Copying a
-- megabyte takes 2 ms. How many fields one command reads is estimated from the largest value so far.
local MAX_BYTES, MAX_FIELDS = 1024 * 1024, 16

local function get_some(key, fields, bytes)
  local found, count, left, largest = {}, 0, bytes or MAX_BYTES, MAX_BYTES
  while count < #fields and left > 0 do
    local to = math.min(count + math.max(1, math.min(MAX_FIELDS, math.floor(left / largest))), #fields)
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

-- Collects the arguments of one command per key.
local function append_to(by_key, key, first, second)
  local found = by_key[key]
  if not found then
    found = {}
    by_key[key] = found
  end
  found[#found + 1] = first
  if second ~= nil then found[#found + 1] = second end
end
