-- Flows or schedules that wait to be advanced: those with ends, then those that are due, the longest waiting first.
--   ARGV[2]   kind
--   ARGV[3]   how many at most
--   ARGV[4]   how many ends of one at most
--   ARGV[5]   how many rows and ends of all together: more would keep others waiting
--   ARGV[6]   'any', or 'of' those whose ids follow
-- Answers in how many seconds the next one comes due, '' when none will; then of each {id, row, {number, job, the
-- letter of its state, …}}, and of those that were too many only the id.
-- uses: wall stirring
local kind, limit, most, left = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local stirred, dues = root .. 'stirred:' .. kind, root .. 'dues:' .. kind
local now = string.format('%.17g', wall)

local waiting, seen = {}, {}
local function add(ids)
  for _, id in ipairs(ids) do
    if #waiting < limit and not seen[id] then
      waiting[#waiting + 1], seen[id] = id, true
    end
  end
end

-- Those of ARGV that stand in an order up to a score, as they stand there.
local function meant(order, last)
  local found, ranks = {}, {}
  for at = 7, #ARGV do
    local score = redis.call('ZSCORE', order, ARGV[at])
    if score and tonumber(score) <= last then
      found[#found + 1] = ARGV[at]
      ranks[ARGV[at]] = redis.call('ZRANK', order, ARGV[at])
    end
  end
  table.sort(found, function(one, other) return ranks[one] < ranks[other] end)
  return found
end

if ARGV[6] == 'any' then
  add(redis.call('ZRANGE', stirred, 0, limit - 1))
  add(redis.call('ZRANGEBYSCORE', dues, '-inf', now, 'LIMIT', 0, limit))
else
  add(meant(stirred, math.huge))
  add(meant(dues, wall))
end

-- Records of jobs that have ended may be long, so their states are kept apart, too.
local function ends_of(course)
  local numbers = redis.call('ZRANGE', root .. 'stirs:' .. kind .. ':' .. course, 0, most - 1)
  local jobs, found = {}, {}
  for at, text in ipairs(get_many(root .. 'stirs', numbers)) do
    local _, job = stir_of(text)
    jobs[at] = job
  end
  for at, letter in ipairs(get_many(root .. 'part_ends:' .. course, jobs)) do
    local job = jobs[at]
    if not letter and job ~= '' then letter = sub(redis.call('HGET', root .. 'jobs', job) or '', 1, 1) end
    found[3 * at - 2], found[3 * at - 1], found[3 * at] = numbers[at], job, letter or ''
  end
  left = left - #numbers
  return found
end

local next_ = redis.call('ZRANGEBYSCORE', dues, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local reply = { next_ and string.format('%.17g', tonumber(next_) - wall) or '' }
for at, id in ipairs(waiting) do
  left = left - 1
  if at > 1 and left < 0 then
    reply[at + 1] = id
  else
    reply[at + 1] = { id, redis.call('HGET', root .. 'courses:' .. kind, id), ends_of(id) }
  end
end
return reply
