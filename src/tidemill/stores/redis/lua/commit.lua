-- Writes what a step made of the rows it looked up, if they are still what they were.
--   ARGV[2]  the step, see parts/turn.lua
--   how many checks, of each: how many words, the words (see `checks`)
--   how many writes, of each: how many words, the words: a command of Redis, or one of `writes`
--   how many lanes in which jobs come or go, of each: queue, lane, its group, its row, '-' if it is forgotten
--   or '' if nothing is known of it
--   how many picks, and topics to be rung
-- Answers 1, or 0 when something is different and nothing was written.
-- uses: clock bell records many turn stirring
local cursor = 3
local function word()
  cursor = cursor + 1
  return ARGV[cursor - 1]
end

local checks = {}

-- field, value, …
function checks.hash(key, ...)
  local given, fields = { ... }, {}
  for at = 1, #given, 2 do fields[#fields + 1] = given[at] end
  for at, value in ipairs(redis.call('HMGET', root .. key, unpack(fields))) do
    if value ~= given[2 * at] then return false end
  end
  return true
end

function checks.none(key, ...)
  for _, value in ipairs(redis.call('HMGET', root .. key, ...)) do
    if value then return false end
  end
  return true
end

function checks.entry(key, name, expected)
  return #redis.call('XRANGE', root .. key, name, name) == tonumber(expected)
end

-- Of what is too long to be sent again.
function checks.digest(key, field, expected)
  local found = redis.call('HGET', root .. key, field)
  return found and redis.sha1hex(found) == expected
end

-- Counts are read for limits: whoever had room has it still when there are fewer.
function checks.count(key, field, expected)
  return tonumber(redis.call('HGET', root .. key, field) or 0) <= tonumber(expected)
end

function checks.score(key, member, expected)
  local found = redis.call('ZSCORE', root .. key, member)
  return tonumber(found or '') == tonumber(expected)
end

function checks.order(key, ...)
  local found, expected = redis.call('ZRANGE', root .. key, 0, -1), { ... }
  for at = 1, math.max(#found, #expected) do
    if found[at] ~= expected[at] then return false end
  end
  return true
end

function checks.members(key, ...)
  local expected = { ... }
  if redis.call('SCARD', root .. key) ~= #expected then return false end
  for _, member in ipairs(expected) do
    if redis.call('SISMEMBER', root .. key, member) == 0 then return false end
  end
  return true
end

function checks.fields(key, expected)
  return redis.call('HLEN', root .. key) == tonumber(expected)
end

function checks.size(key, expected)
  return redis.call('SCARD', root .. key) == tonumber(expected)
end

-- Of a lane that is shut because of it.
function checks.head(key, expected)
  return redis.call('ZRANGE', root .. key, 0, 0)[1] == expected
end

local writes = {}

-- A count that is forgotten when nothing is left.
function writes.TALLY(key, field, by)
  if redis.call('HINCRBY', key, field, by) == 0 then redis.call('HDEL', key, field) end
end

-- As Python adds: Redis would add in more digits than it has.
function writes.PLUS(key, field, by)
  local before = tonumber(redis.call('HGET', key, field) or 0)
  redis.call('HSET', key, field, string.format('%.17g', before + tonumber(by)))
end

-- Of a page that is empty nothing is left, unless jobs are still to come on it.
function writes.UNPAGE(key, page, ...)
  redis.call('HDEL', key, ...)
  local last = tonumber(redis.call('HGET', shard, 'seq'))
  if tonumber(page) < math.floor(last / 100) and redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', root .. 'pages', page)
  end
end

-- With the lines of every attempt.
function writes.UNLOG(key, id)
  for _, attempt in ipairs(redis.call('SMEMBERS', key)) do
    redis.call('DEL', root .. 'lines:' .. attempt .. ':' .. id)
  end
  redis.call('DEL', key)
end

function writes.TAKE(_, ...)
  take({ ... })
end

function writes.STIR(_, kind, course, ...)
  stir(kind, course, { ... })
end

-- With a course goes all that has stirred it.
function writes.UNSTIR(key, kind, course)
  local order = key .. ':' .. kind .. ':' .. course
  call_many('HDEL', key, redis.call('ZRANGE', order, 0, -1))
  redis.call('DEL', order)
  redis.call('ZREM', root .. 'stirred:' .. kind, course)
end

for _ = 1, tonumber(word()) do
  local words = tonumber(word())
  if not checks[ARGV[cursor]](unpack(ARGV, cursor + 1, cursor + words - 1)) then return 0 end
  cursor = cursor + words
end

local first_write = cursor
for _ = 1, tonumber(word()) do cursor = cursor + 1 + tonumber(ARGV[cursor]) end
local lanes = {}
for number = 1, tonumber(word()) do
  lanes[number] = { queue = word(), name = word(), group = word(), given = word() }
end
local picked = tonumber(word())

-- Where a lane stands among the open ones: by its head's priority, then served, then the head's place in line.
local function place(lane, row)
  local first = redis.call('ZRANGE', lane.key, 0, 0, 'WITHSCORES')
  if not first[1] then return nil end
  return sub(row, 2, 7) .. sub(first[1], 9, 14) .. lane.name, first[2]
end

local function take_out(lane)
  lane.key = root .. 'lane:' .. both(lane.queue, lane.name)
  lane.order = root .. 'open:' .. both(lane.queue, lane.group)
  lane.before = redis.call('HGET', root .. 'lanes:' .. lane.queue, lane.name)
  if lane.before and sub(lane.before, 1, 1) == '\0' then
    local stood = place(lane, lane.before)
    if stood then redis.call('ZREM', lane.order, stood) end
  end
end

local function picks()
  return tonumber(redis.call('HGET', shard, 'picks') or 0)
end

local NOT_SHUT = '\147\192\0\192' -- [nil, 0, nil]
local FORGOTTEN = '-'

-- Rows, orders and sizes of all lanes are written together.
local rows, orders, sizes = {}, {}, {}

local function resize(lane, by)
  local of_queue = sizes[lane.queue] or {}
  sizes[lane.queue] = of_queue
  of_queue[lane.group] = (of_queue[lane.group] or 0) + by
end

local function put_in(lane)
  local row = lane.given ~= '' and lane.given or lane.before or FORGOTTEN
  if row == FORGOTTEN then row = '\0' .. pack('>I6', picks()) .. NOT_SHUT end
  local stands, priority = place(lane, row)
  if stands then
    if row ~= lane.before then gather(rows, lane.queue, lane.name, row) end
    if sub(row, 1, 1) == '\0' then gather(orders, lane.order, priority, stands) end
    if not lane.before then resize(lane, 1) end
  elseif lane.before then
    redis.call('HDEL', root .. 'lanes:' .. lane.queue, lane.name)
    resize(lane, -1)
  end
end

-- The lane of plain jobs: its place is made up when it is looked at.
local function serve(lane)
  if redis.call('EXISTS', root .. 'ready:' .. lane.queue) == 0 then
    redis.call('HDEL', root .. 'served', lane.queue)
  elseif lane.given ~= '' then
    redis.call('HSET', root .. 'served', lane.queue, lane.given)
  else
    redis.call('HSETNX', root .. 'served', lane.queue, picks())
  end
end

for _, lane in ipairs(lanes) do
  if lane.name ~= '' then take_out(lane) end
end
local position = first_write
for _ = 1, tonumber(ARGV[first_write]) do
  local to = position + 1 + tonumber(ARGV[position + 1])
  local command, key, from = ARGV[position + 2], root .. ARGV[position + 3], position + 4
  local own = writes[command]
  if own then
    own(key, unpack(ARGV, from, to))
  else
    redis.call(command, key, unpack(ARGV, from, to))
  end
  position = to
end
for _, lane in ipairs(lanes) do
  if lane.name == '' then serve(lane) else put_in(lane) end
end
for queue, texts in pairs(rows) do call_many('HSET', root .. 'lanes:' .. queue, texts) end
for order, places in pairs(orders) do call_many('ZADD', order, places) end
for queue, groups in pairs(sizes) do
  for group, by in pairs(groups) do
    if by ~= 0 then writes.TALLY(root .. 'groups:' .. queue, group, by) end
  end
end
if picked > 0 then redis.call('HINCRBY', shard, 'picks', picked) end
local topics = {}
for topic = cursor, #ARGV do topics[#topics + 1] = ARGV[topic] end
ring(topics)
end_turn(ARGV[2])
return 1
