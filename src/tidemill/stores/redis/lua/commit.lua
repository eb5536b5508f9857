-- Commits an engine transaction, if the rows it has read are unchanged.
--   ARGV[2]  transaction, see parts/commit_turn.lua
--   number of checks, per check: number of words, words (see `checks`)
--   number of writes, per write: number of words, words: a Redis command, or one of `writes`
--   number of lanes that change, per lane: queue, lane, group, row; the row is '-' if deleted, '' if not loaded
--   number of picks, then the topics to wake
-- Returns 1, or 0 if a check failed and nothing was written.
-- uses: clock wakeups job_record bulk_commands commit_turn worklist
local cursor = 3
local function word()
  cursor = cursor + 1
  return ARGV[cursor - 1]
end

local checks = {}

-- Arguments: field, value, …
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

-- For values that are too long to send again.
function checks.digest(key, field, expected)
  local found = redis.call('HGET', root .. key, field)
  return found and redis.sha1hex(found) == expected
end

-- Counts are compared with limits, so a lower count cannot invalidate the decision.
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

-- For a lane that is blocked because its first job was refused.
function checks.head(key, expected)
  return redis.call('ZRANGE', root .. key, 0, 0)[1] == expected
end

local writes = {}

-- Changes a count and deletes its field at zero.
function writes.COUNT_OR_DELETE(key, field, by)
  if redis.call('HINCRBY', key, field, by) == 0 then redis.call('HDEL', key, field) end
end

-- Adds floats as Python does: HINCRBYFLOAT computes with more digits.
function writes.ADD_FLOAT(key, field, by)
  local before = tonumber(redis.call('HGET', key, field) or 0)
  redis.call('HSET', key, field, string.format('%.17g', before + tonumber(by)))
end

-- An empty page is deleted, unless new jobs can still be added to it.
function writes.DELETE_FROM_PAGE(key, page, ...)
  redis.call('HDEL', key, ...)
  local last = tonumber(redis.call('HGET', shard, 'seq'))
  if tonumber(page) < math.floor(last / 100) and redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', root .. 'pages', page)
  end
end

-- Deletes the log lines of every attempt.
function writes.DELETE_LOGS(key, id)
  for _, attempt in ipairs(redis.call('SMEMBERS', key)) do
    redis.call('DEL', root .. 'log_lines:' .. attempt .. ':' .. id)
  end
  redis.call('DEL', key)
end

function writes.TAKE_WORK(_, ...)
  take_work({ ... })
end

function writes.MARK_DOCUMENT(_, kind, document, ...)
  mark_document(kind, document, { ... })
end

-- Deletes the work items of a document.
function writes.DELETE_WORK(key, kind, document)
  local numbers_key = key .. ':' .. kind .. ':' .. document
  call_many('HDEL', key, redis.call('ZRANGE', numbers_key, 0, -1))
  redis.call('DEL', numbers_key)
  redis.call('ZREM', root .. 'marked_documents:' .. kind, document)
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

-- Member and score of a lane in the open lanes: priority of its first job, served number, seq of that job.
local function open_lane_entry(lane, row)
  local first = redis.call('ZRANGE', lane.key, 0, 0, 'WITHSCORES')
  if not first[1] then return nil end
  return sub(row, 2, 7) .. sub(first[1], 9, 14) .. lane.name, first[2]
end

local function remove_open_lane(lane)
  lane.key = root .. 'lane:' .. join_names(lane.queue, lane.name)
  lane.open_key = root .. 'open_lanes:' .. join_names(lane.queue, lane.group)
  lane.before = redis.call('HGET', root .. 'lanes:' .. lane.queue, lane.name)
  if lane.before and sub(lane.before, 1, 1) == '\0' then
    local member = open_lane_entry(lane, lane.before)
    if member then redis.call('ZREM', lane.open_key, member) end
  end
end

local function picks()
  return tonumber(redis.call('HGET', shard, 'picks') or 0)
end

local NOT_BLOCKED = '\147\192\0\192' -- [nil, 0, nil]
local DELETED = '-'

-- Rows, open lanes and lane counts are collected and written together.
local rows, open_lanes, lane_counts = {}, {}, {}

local function count_lane(lane, by)
  local of_queue = lane_counts[lane.queue] or {}
  lane_counts[lane.queue] = of_queue
  of_queue[lane.group] = (of_queue[lane.group] or 0) + by
end

local function write_lane(lane)
  local row = lane.given ~= '' and lane.given or lane.before or DELETED
  if row == DELETED then row = '\0' .. pack('>I6', picks()) .. NOT_BLOCKED end
  local member, priority = open_lane_entry(lane, row)
  if member then
    if row ~= lane.before then append_to(rows, lane.queue, lane.name, row) end
    if sub(row, 1, 1) == '\0' then append_to(open_lanes, lane.open_key, priority, member) end
    if not lane.before then count_lane(lane, 1) end
  elseif lane.before then
    redis.call('HDEL', root .. 'lanes:' .. lane.queue, lane.name)
    count_lane(lane, -1)
  end
end

-- The lane of plain jobs has no entry in the open lanes: load.lua computes it.
local function write_served(lane)
  if redis.call('EXISTS', root .. 'ready:' .. lane.queue) == 0 then
    redis.call('HDEL', root .. 'served', lane.queue)
  elseif lane.given ~= '' then
    redis.call('HSET', root .. 'served', lane.queue, lane.given)
  else
    redis.call('HSETNX', root .. 'served', lane.queue, picks())
  end
end

for _, lane in ipairs(lanes) do
  if lane.name ~= '' then remove_open_lane(lane) end
end
local position = first_write
for _ = 1, tonumber(ARGV[first_write]) do
  local to = position + 1 + tonumber(ARGV[position + 1])
  local command, key, from = ARGV[position + 2], root .. ARGV[position + 3], position + 4
  local write = writes[command]
  if write then
    write(key, unpack(ARGV, from, to))
  else
    redis.call(command, key, unpack(ARGV, from, to))
  end
  position = to
end
for _, lane in ipairs(lanes) do
  if lane.name == '' then write_served(lane) else write_lane(lane) end
end
for queue, texts in pairs(rows) do call_many('HSET', root .. 'lanes:' .. queue, texts) end
for open_key, entries in pairs(open_lanes) do call_many('ZADD', open_key, entries) end
for queue, groups in pairs(lane_counts) do
  for group, by in pairs(groups) do
    if by ~= 0 then writes.COUNT_OR_DELETE(root .. 'lane_counts:' .. queue, group, by) end
  end
end
if picked > 0 then redis.call('HINCRBY', shard, 'picks', picked) end
local topics = {}
for topic = cursor, #ARGV do topics[#topics + 1] = ARGV[topic] end
wake_listeners(topics)
end_turn(ARGV[2])
return 1
