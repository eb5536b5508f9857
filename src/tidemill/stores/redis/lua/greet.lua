-- Said first on every connection.
--   ARGV[2]  identity of the server: another after a restart or a failover
--   ARGV[3]  the schema version this Tidemill writes
-- Answers wall, boot, and the schema version found. Of another version nothing is touched.
--
-- A failover may have lost claims that were given out, their fences with them. So the fence jumps where no
-- claim can have been: none is ever given twice (I5).
-- uses: full clock
local FENCE_JUMP = 1000000

local kept = redis.call('HMGET', shard, 'schema', 'server')
local schema, server = kept[1] or ARGV[3], kept[2]
if schema == ARGV[3] and server ~= ARGV[2] then
  redis.call('HSET', shard, 'schema', schema, 'server', ARGV[2])
  if server then
    redis.call('HINCRBY', shard, 'fence', FENCE_JUMP)
  end
end
return { string.format('%.6f', clock.wall), string.format('%.6f', clock.boot), schema }
