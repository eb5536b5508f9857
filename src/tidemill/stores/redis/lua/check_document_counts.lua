-- Compares the counters of documents of one kind with their indexes, in one snapshot.
--   ARGV[2]  kind
-- Returns name, counted, found …
-- uses: keys job_record
local kind, found, sum = ARGV[2], {}, 0

local function listed(state)
  return redis.call('ZCARD', root .. 'document_index:' .. kind .. ':' .. join_names(state, ''))
end

local counts = redis.call('HGETALL', root .. 'document_counts:' .. kind)
for at = 1, #counts, 2 do
  sum = sum + counts[at + 1]
  found[#found + 1] = counts[at]
  found[#found + 1] = tonumber(counts[at + 1])
  found[#found + 1] = listed(counts[at])
end
local there = redis.call('HLEN', root .. 'documents:' .. kind)
for what, counted in pairs({ ['in all'] = sum, ['in the list'] = listed('') }) do
  found[#found + 1] = what
  found[#found + 1] = counted
  found[#found + 1] = there
end
return found
