-- Returns the documents of those work items ARGV[2], ARGV[3] … that no worklist would show.
-- uses: keys worklist
local numbers, found = { unpack(ARGV, 2) }, {}
for at, text in ipairs(get_many(root .. 'worklist', numbers)) do
  if text then
    local name = parse_work_item(text)
    local kind, document = string.match(name, '^(%l+):(.*)$')
    local first = redis.call('ZRANGE', root .. 'worklist:' .. name, 0, 0)[1]
    local is_shown = redis.call('ZSCORE', root .. 'worklist:' .. name, numbers[at])
      and tonumber(redis.call('ZSCORE', root .. 'marked_documents:' .. kind, document) or '') == tonumber(first)
      and redis.call('HEXISTS', root .. 'documents:' .. kind, document) == 1
    if not is_shown then found[#found + 1] = name end
  end
end
return found
