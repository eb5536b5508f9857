-- Lets another lead at once.
--   ARGV[2]  duty
--   ARGV[3]  worker; another's lead is left alone
-- uses: root
local known = redis.call('HGET', root .. 'leaders', ARGV[2])
if known and cjson.decode(known).worker == ARGV[3] then redis.call('HDEL', root .. 'leaders', ARGV[2]) end
