-- Which of the stirs with the numbers ARGV[2], ARGV[3] … no agenda would show.
-- Answers the courses they are kept of.
-- uses: root stirring
local numbers, found = { unpack(ARGV, 2) }, {}
for at, text in ipairs(get_many(root .. 'stirs', numbers)) do
  if text then
    local name = stir_of(text)
    local kind, course = string.match(name, '^(%l+):(.*)$')
    local first = redis.call('ZRANGE', root .. 'stirs:' .. name, 0, 0)[1]
    local is_shown = redis.call('ZSCORE', root .. 'stirs:' .. name, numbers[at])
      and tonumber(redis.call('ZSCORE', root .. 'stirred:' .. kind, course) or '') == tonumber(first)
      and redis.call('HEXISTS', root .. 'courses:' .. kind, course) == 1
    if not is_shown then found[#found + 1] = name end
  end
end
return found
