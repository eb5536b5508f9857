-- Gives up the leadership of roles.
--   ARGV[2]   worker; roles that another worker leads stay
--   ARGV[3]…  roles
-- uses: keys
for at = 3, #ARGV do
  local known = redis.call('HGET', root .. 'leaders', ARGV[at])
  if known and cjson.decode(known).worker == ARGV[2] then redis.call('HDEL', root .. 'leaders', ARGV[at]) end
end
