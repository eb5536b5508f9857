-- Lets another lead at once.
--   ARGV[2]   worker; another's lead is left alone
--   ARGV[3]…  duties
-- uses: root
for at = 3, #ARGV do
  local known = redis.call('HGET', root .. 'leaders', ARGV[at])
  if known and cjson.decode(known).worker == ARGV[2] then redis.call('HDEL', root .. 'leaders', ARGV[at]) end
end
