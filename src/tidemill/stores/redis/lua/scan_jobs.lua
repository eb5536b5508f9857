-- Scans jobs by seq and returns those that may match. One call is short, however many jobs there are.
--   ARGV[2]  'newest' or 'oldest' first
--   ARGV[3]  continue after this seq, '' from the start
--   ARGV[4]  prefix of the ids
--   ARGV[5]  matches after which the reply may stop
--   ARGV[6]  jobs to examine at most
--   ARGV[7]…  the filter (parts/record_filter.lua)
-- Returns the seq of the last examined job ('' at the end) and the number of examined jobs; then id, record
-- and lease per match. An id that is skipped by its prefix costs a tenth of an examined job.
-- uses: keys job_record leases record_filter
local MAX_BYTES, SKIPPED_COST = 2 * 1024 * 1024, 0.1

local newest, prefix = ARGV[2] == 'newest', ARGV[4]
local from, max_found, max_examined = tonumber(ARGV[3]), tonumber(ARGV[5]), math.min(1000, tonumber(ARGV[6]))
local MAX_PAGES = prefix == '' and 40 or 200
local may_match = record_filter(7)

local function pages()
  local first = from and math.floor(from / 100)
  if newest then
    return redis.call('ZREVRANGEBYSCORE', root .. 'pages', first or '+inf', '-inf', 'LIMIT', 0, MAX_PAGES)
  end
  return redis.call('ZRANGEBYSCORE', root .. 'pages', first or '-inf', '+inf', 'LIMIT', 0, MAX_PAGES)
end

local examined = 0

-- Returns the sorted seqs of a page after `from` whose ids have the prefix, and the ids by seq.
local function page_jobs(page)
  local entries, ids, found = redis.call('HGETALL', root .. 'page:' .. page), {}, {}
  for at = 1, #entries, 2 do
    local seq = page * 100 + tonumber(entries[at])
    if prefix ~= '' and sub(entries[at + 1], 1, #prefix) ~= prefix then
      examined = examined + SKIPPED_COST
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
  local seqs, ids = page_jobs(page)
  for _, seq in ipairs(seqs) do
    if last and (examined >= max_examined or bytes >= MAX_BYTES or #found - 2 >= 3 * max_found) then
      found[1], found[2] = string.format('%.0f', last), math.ceil(examined)
      return found
    end
    local record = redis.call('HGET', root .. 'jobs', ids[seq])
    bytes = bytes + (record and #record or 0)
    if record and may_match(record) then
      found[#found + 1], found[#found + 2], found[#found + 3] = ids[seq], record, lease_of(ids[seq], record)
    end
    examined, last = examined + 1, seq
  end
  -- The next call continues at the end of this page, although it may have read the whole page.
  last = newest and page * 100 or page * 100 + 99
  if number == MAX_PAGES or (examined >= max_examined and number < #known) then
    found[1], found[2] = string.format('%.0f', last), math.ceil(examined)
    return found
  end
end
found[2] = math.ceil(examined)
return found
