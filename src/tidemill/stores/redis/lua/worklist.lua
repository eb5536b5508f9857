-- Lists flows or schedules to advance: first those with work items, then those that are due; oldest first.
--   ARGV[2]   kind
--   ARGV[3]   limit of documents
--   ARGV[4]   limit of work items per document
--   ARGV[5]   limit of rows and work items in total, so that the script stays short
--   ARGV[6]   'any', or 'of' followed by ids
-- Returns the seconds until the next document is due, '' if none; then per document {id, row, {number, job,
-- state letter, …}}, or only the id for documents beyond the total limit.
-- uses: wall_clock worklist
local kind, limit, max_items, left = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local marked, due = root .. 'marked_documents:' .. kind, root .. 'due_documents:' .. kind
local now = string.format('%.17g', wall)

local waiting, seen = {}, {}
local function add(ids)
  for _, id in ipairs(ids) do
    if #waiting < limit and not seen[id] then
      waiting[#waiting + 1], seen[id] = id, true
    end
  end
end

-- Returns the ids of ARGV whose score in the sorted set is at most `last`, in its order.
local function select_ids(index, last)
  local found, ranks = {}, {}
  for at = 7, #ARGV do
    local score = redis.call('ZSCORE', index, ARGV[at])
    if score and tonumber(score) <= last then
      found[#found + 1] = ARGV[at]
      ranks[ARGV[at]] = redis.call('ZRANK', index, ARGV[at])
    end
  end
  table.sort(found, function(one, other) return ranks[one] < ranks[other] end)
  return found
end

if ARGV[6] == 'any' then
  add(redis.call('ZRANGE', marked, 0, limit - 1))
  add(redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, limit))
else
  add(select_ids(marked, math.huge))
  add(select_ids(due, wall))
end

-- Records of ended jobs can be long, so the state letters are also stored apart.
local function work_items_of(document)
  local numbers = redis.call('ZRANGE', root .. 'worklist:' .. kind .. ':' .. document, 0, max_items - 1)
  local jobs, found = {}, {}
  for at, text in ipairs(get_many(root .. 'worklist', numbers)) do
    local _, job = parse_work_item(text)
    jobs[at] = job
  end
  for at, letter in ipairs(get_many(root .. 'flow_job_states:' .. document, jobs)) do
    local job = jobs[at]
    if not letter and job ~= '' then letter = sub(redis.call('HGET', root .. 'jobs', job) or '', 1, 1) end
    found[3 * at - 2], found[3 * at - 1], found[3 * at] = numbers[at], job, letter or ''
  end
  left = left - #numbers
  return found
end

local next_ = redis.call('ZRANGEBYSCORE', due, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local reply = { next_ and string.format('%.17g', tonumber(next_) - wall) or '' }
for at, id in ipairs(waiting) do
  left = left - 1
  if at > 1 and left < 0 then
    reply[at + 1] = id
  else
    reply[at + 1] = { id, redis.call('HGET', root .. 'documents:' .. kind, id), work_items_of(id) }
  end
end
return reply
