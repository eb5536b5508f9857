-- Some jobs in their order of coming in; nobody waits long for it, however many there are.
--   ARGV[2]  'newest' or 'oldest' first
--   ARGV[3]  behind the one with that place in line, '' from the beginning
--   ARGV[4]  letters of the states that are wanted, '' for any
--   ARGV[5]  the queue, '' for any
--   ARGV[6]  what ids begin with
--   ARGV[7]  how many are enough
-- Answers the place in line of the last one that was looked at, '' when there are no more; then of each that
-- was found its id, its record and its lease.
-- uses: root records leases
local LOOKED, PAGES, BYTES = 1000, 40, 1024 * 1024

local newest, states, queue, prefix = ARGV[2] == 'newest', ARGV[4], ARGV[5], ARGV[6]
local from, enough = tonumber(ARGV[3]), tonumber(ARGV[7])

local function pages()
  local first = from and math.floor(from / 100)
  if newest then
    return redis.call('ZREVRANGEBYSCORE', root .. 'pages', first or '+inf', '-inf', 'LIMIT', 0, PAGES)
  end
  return redis.call('ZRANGEBYSCORE', root .. 'pages', first or '-inf', '+inf', 'LIMIT', 0, PAGES)
end

-- Places and ids of a page, those behind `from`, in order.
local function places(page)
  local entries, ids, found = redis.call('HGETALL', root .. 'page:' .. page), {}, {}
  for at = 1, #entries, 2 do
    local seq = page * 100 + tonumber(entries[at])
    if not from or (newest and seq < from) or (not newest and seq > from) then
      found[#found + 1], ids[seq] = seq, entries[at + 1]
    end
  end
  table.sort(found, newest and function(one, other) return one > other end or nil)
  return found, ids
end

local function is_wanted(record)
  if states ~= '' and not string.find(states, sub(record, 1, 1), 1, true) then return false end
  if queue == '' then return true end
  local _, _, _, _, _, _, _, _, _, its = head(record)
  return its == queue
end

local found, looked, bytes = { '' }, 0, 0
local known = pages()
for number, page in ipairs(known) do
  local seqs, ids = places(page)
  for _, seq in ipairs(seqs) do
    local id = ids[seq]
    looked = looked + 1
    if sub(id, 1, #prefix) == prefix then
      local record = redis.call('HGET', root .. 'jobs', id)
      if record and is_wanted(record) then
        found[#found + 1], found[#found + 2], found[#found + 3] = id, record, lease_of(id, record)
        bytes = bytes + #record
      end
    end
    if looked >= LOOKED or bytes >= BYTES or #found > 3 * enough then
      found[1] = string.format('%.0f', seq)
      return found
    end
  end
  -- Behind the last page there may be more of them; the place before the first of the next is as good.
  if number == PAGES then
    found[1] = string.format('%.0f', newest and page * 100 or page * 100 + 99)
  end
end
return found
