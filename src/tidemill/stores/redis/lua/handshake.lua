-- The first script on every connection.
--   ARGV[2]  identity of the server, which changes after a restart or failover
--   ARGV[3]  schema version of this Tidemill
-- Returns wall, boot, and the schema version found. A store of another version is left untouched.
--
-- A failover can lose claims together with their fences. The fence therefore jumps to numbers that no claim
-- can have, so that no fence is given twice (I5).
-- uses: out_of_memory clock
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
