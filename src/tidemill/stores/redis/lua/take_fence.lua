-- Returns a new fence, higher than all before.
-- uses: out_of_memory
return redis.call('HINCRBY', shard, 'fence', 1)
