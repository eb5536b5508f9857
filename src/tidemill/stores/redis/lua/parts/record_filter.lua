-- Tells which records may match a filter. It may accept too many records, never too few: the caller applies
-- core.filters again. Arguments from ARGV[at] on, as stores/redis/find.py writes them:
--   letters of the wanted states, '' for any
--   queue, '' for any
--   'created', 'due' or '' for no time range, and its start and end, '' for open
--   a text as JSON and as plain text, both in lower case, '' for none
--   number of words that a record must contain, and the words
--   words that the payload must contain, unless it may spell them with escapes
-- uses: job_record
local function record_filter(at)
  local states, queue, time, text, plain = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 5], ARGV[at + 6]
  local since, until_ = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local first = at + 8
  local last = first + tonumber(ARGV[at + 7]) - 1
  local find = string.find

  -- Lane names contain U+001F, which says nothing about the payload.
  local function may_escape(record)
    if not find(record, '\\', 1, true) then return false end
    local others = string.gsub(record, '\\u001f', '')
    return find(others, '\\u', 1, true) or find(others, '\\/', 1, true)
  end

  local function is_in_range(record)
    local _, _, _, _, created, due = head(record)
    local time_of_job = time == 'due' and due or created
    return (not since or time_of_job >= since) and (not until_ or time_of_job < until_)
  end

  local caseless = not find(text .. plain, '%a')

  local function has_text(record)
    local lowered = caseless and record or string.lower(record)
    return find(lowered, text, 1, true) or find(lowered, plain, 1, true) or may_escape(record)
  end

  return function(record)
    if states ~= '' and not find(states, sub(record, 1, 1), 1, true) then return false end
    if queue ~= '' and sub(record, 42, rest_of(record) - 1) ~= queue then return false end
    if time ~= '' and not is_in_range(record) then return false end
    for number = first, last do
      if not find(record, ARGV[number], 1, true) then return false end
    end
    for number = last + 1, #ARGV do
      if not find(record, ARGV[number], 1, true) and not may_escape(record) then return false end
    end
    return text == '' or has_text(record)
  end
end
