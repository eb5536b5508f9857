-- Some jobs in their order of coming in; nobody waits long for it, however many there are.
--   ARGV[2]  'newest' or 'oldest' first
--   ARGV[3]  behind the one with that place in line, '' from the beginning
--   ARGV[4]  what ids begin with
--   ARGV[5]  how many are enough
--   ARGV[6]  how many may be looked at
--   ARGV[7]  … what is wanted (parts/sieve.lua)
-- Answers the place in line of the last one that was looked at, '' when there are no more, and how many were looked
-- at; then of each that was found its id, its record and its lease. To pass over an id is a tenth of a look.
-- uses: root records leases sieve
local BYTES, PASSED = 2 * 1024 * 1024, 0.1

local newest, prefix = ARGV[2] == 'newest', ARGV[4]
local from, enough, most = tonumber(ARGV[3]), tonumber(ARGV[5]), math.min(1000, tonumber(ARGV[6]))
local PAGES = prefix == '' and 40 or 200
local is_wanted = sieve(7)

local function pages()
  local first = from and math.floor(from / 100)
  if newest then
    return redis.call('ZREVRANGEBYSCORE', root .. 'pages', first or '+inf', '-inf', 'LIMIT', 0, PAGES)
  end
  return redis.call('ZRANGEBYSCORE', root .. 'pages', first or '-inf', '+inf', 'LIMIT', 0, PAGES)
end

local looked = 0

-- Places and ids of a page, those behind `from` whose ids begin right, in order.
local function places(page)
  local entries, ids, found = redis.call('HGETALL', root .. 'page:' .. page), {}, {}
  for at = 1, #entries, 2 do
    local seq = page * 100 + tonumber(entries[at])
    if prefix ~= '' and sub(entries[at + 1], 1, #prefix) ~= prefix then
      looked = looked + PASSED
    elseif not from or (newest and seq < from) or (not newest and seq > from) then
      found[#found + 1], ids[seq] = seq, entries[at + 1]
    end
  end
  table.sort(found, newest and function(one, other) return one > other end or nil)
  return found, ids
end

local found, bytes, last = { '', 0 }, 0, nil
local known = pages()
for number, page in ipairs(known) do
  local seqs, ids = places(page)
  for _, seq in ipairs(seqs) do
    if last and (looked >= most or bytes >= BYTES or #found - 2 >= 3 * enough) then
      found[1], found[2] = string.format('%.0f', last), math.ceil(looked)
      return found
    end
    local record = redis.call('HGET', root .. 'jobs', ids[seq])
    bytes = bytes + (record and #record or 0)
    if record and is_wanted(record) then
      found[#found + 1], found[#found + 2], found[#found + 3] = ids[seq], record, lease_of(ids[seq], record)
    end
    looked, last = looked + 1, seq
  end
  -- Behind a page there may be more of them; the place before the first of the next is as good.
  last = newest and page * 100 or page * 100 + 99
  if number == PAGES or (looked >= most and number < #known) then
    found[1], found[2] = string.format('%.0f', last), math.ceil(looked)
    return found
  end
end
found[2] = math.ceil(looked)
return found
