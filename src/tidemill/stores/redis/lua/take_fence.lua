-- A number higher than all before, for jobs that are about to be claimed.
-- uses: full
return redis.call('HINCRBY', shard, 'fence', 1)
