-- What has happened to flows and schedules that nobody has looked at yet (F10). Each stir has a number that is
-- never given again: `stirs` has number → course and job, `stirs:<course>` a course's numbers in order, and
-- `stirred:<kind>` the courses by the first of theirs.
-- uses: root records many
local function stir_of(text)
  local length, from = string.match(text, '^(%d+):()')
  local to = from + length
  return sub(text, from, to - 1), sub(text, to + 1)
end

-- Whether there is such a course.
local function stir(kind, course, jobs)
  if redis.call('HEXISTS', root .. 'courses:' .. kind, course) == 0 then return false end
  local name, before = kind .. ':' .. course, redis.call('HINCRBY', shard, 'stirs', #jobs) - #jobs
  local texts, places = {}, {}
  for at, job in ipairs(jobs) do
    local number = string.format('%.0f', before + at)
    texts[2 * at - 1], texts[2 * at] = number, both(name, job)
    places[2 * at - 1], places[2 * at] = number, number
  end
  call_many('HSET', root .. 'stirs', texts)
  call_many('ZADD', root .. 'stirs:' .. name, places)
  redis.call('ZADD', root .. 'stirred:' .. kind, 'NX', places[1], course)
  return true
end

local function take(numbers)
  local by_course = {}
  for at, text in ipairs(get_many(root .. 'stirs', numbers)) do
    if text then gather(by_course, stir_of(text), numbers[at]) end
  end
  for name, taken in pairs(by_course) do
    local kind, course = string.match(name, '^(%l+):(.*)$')
    call_many('HDEL', root .. 'stirs', taken)
    call_many('ZREM', root .. 'stirs:' .. name, taken)
    local first = redis.call('ZRANGE', root .. 'stirs:' .. name, 0, 0)[1]
    if first then
      redis.call('ZADD', root .. 'stirred:' .. kind, first, course)
    else
      redis.call('ZREM', root .. 'stirred:' .. kind, course)
    end
  end
end
