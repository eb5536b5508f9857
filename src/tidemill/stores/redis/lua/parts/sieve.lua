-- Which records may be meant by a filter. Says yes too often, never too seldom: whoever reads them asks
-- core.matching once more. From ARGV[at] on, as stores/redis/sieve.py writes it:
--   letters of the states that are wanted, '' for any
--   the queue, '' for any
--   'created', 'due' or '' for none, and from when until when it lies, '' for ever
--   a text as it stands in JSON and as it is, both in small letters, '' for none
--   how many words follow that a record must have in it, and these
--   what a payload must have in it, unless it spells it in another way
-- uses: records
local function sieve(at)
  local states, queue, time, text, plain = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 5], ARGV[at + 6]
  local since, till = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local first = at + 8
  local last = first + tonumber(ARGV[at + 7]) - 1
  local find = string.find

  -- The names of lanes have U+001F in them, which says nothing of payloads.
  local function may_spell(record)
    if not find(record, '\\', 1, true) then return false end
    local others = string.gsub(record, '\\u001f', '')
    return find(others, '\\u', 1, true) or find(others, '\\/', 1, true)
  end

  local function lies_in_time(record)
    local _, _, _, _, created, due = head(record)
    local when = time == 'due' and due or created
    return (not since or when >= since) and (not till or when < till)
  end

  local caseless = not find(text .. plain, '%a')

  local function has_text(record)
    local small = caseless and record or string.lower(record)
    return find(small, text, 1, true) or find(small, plain, 1, true) or may_spell(record)
  end

  return function(record)
    if states ~= '' and not find(states, sub(record, 1, 1), 1, true) then return false end
    if queue ~= '' and sub(record, 42, rest_of(record) - 1) ~= queue then return false end
    if time ~= '' and not lies_in_time(record) then return false end
    for number = first, last do
      if not find(record, ARGV[number], 1, true) then return false end
    end
    for number = last + 1, #ARGV do
      if not find(record, ARGV[number], 1, true) and not may_spell(record) then return false end
    end
    return text == '' or has_text(record)
  end
end
