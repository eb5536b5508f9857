-- Work items: changes of jobs that their flow or schedule has not processed yet (F10). Each item has a unique
-- number. `worklist` maps the number to document and job, `worklist:<document>` holds the numbers of one
-- document, and `marked_documents:<kind>` orders documents by their first number.
-- uses: keys job_record bulk_commands
local function parse_work_item(text)
  local length, from = string.match(text, '^(%d+):()')
  local to = from + length
  return sub(text, from, to - 1), sub(text, to + 1)
end

-- Adds work items to a document; false if there is no such document.
local function mark_document(kind, document, jobs)
  if redis.call('HEXISTS', root .. 'documents:' .. kind, document) == 0 then return false end
  local name, before = kind .. ':' .. document, redis.call('HINCRBY', shard, 'worklist', #jobs) - #jobs
  local texts, entries = {}, {}
  for at, job in ipairs(jobs) do
    local number = string.format('%.0f', before + at)
    texts[2 * at - 1], texts[2 * at] = number, join_names(name, job)
    entries[2 * at - 1], entries[2 * at] = number, number
  end
  call_many('HSET', root .. 'worklist', texts)
  call_many('ZADD', root .. 'worklist:' .. name, entries)
  redis.call('ZADD', root .. 'marked_documents:' .. kind, 'NX', entries[1], document)
  return true
end

local function take_work(numbers)
  local by_document = {}
  for at, text in ipairs(get_many(root .. 'worklist', numbers)) do
    if text then append_to(by_document, parse_work_item(text), numbers[at]) end
  end
  for name, taken in pairs(by_document) do
    local kind, document = string.match(name, '^(%l+):(.*)$')
    call_many('HDEL', root .. 'worklist', taken)
    call_many('ZREM', root .. 'worklist:' .. name, taken)
    local first = redis.call('ZRANGE', root .. 'worklist:' .. name, 0, 0)[1]
    if first then
      redis.call('ZADD', root .. 'marked_documents:' .. kind, first, document)
    else
      redis.call('ZREM', root .. 'marked_documents:' .. kind, document)
    end
  end
end
