-- Inserts one plain job that is due now and has no expiry, the most common case. It uses as few commands as
-- possible, because they are most of the cost of a single call.
--   ARGV[2]  queue
--   ARGV[3]  id
--   ARGV[4]  priority
--   ARGV[5]  record up to the seq; ARGV[6] from there to the times; ARGV[7] after them
-- Returns 1, or 0 if the engine is needed and nothing was written.
-- uses: wall_clock wake_one
local queue, id = ARGV[2], ARGV[3]
local row = redis.call('HGET', root .. 'queues', queue)
if row and row ~= '{}' or redis.call('HEXISTS', root .. 'known_ids', id) == 1 then return 0 end

local seq = redis.call('HINCRBY', shard, 'seq', 1)
local seq_bytes, now = struct.pack('>I6', seq), struct.pack('>d', wall)
if redis.call('HSETNX', root .. 'jobs', id, ARGV[5] .. seq_bytes .. ARGV[6] .. now .. now .. ARGV[7]) == 0 then
  redis.call('HINCRBY', shard, 'seq', -1)
  return 1
end
local page, slot = math.floor(seq / 100), seq % 100
redis.call('HSET', root .. 'page:' .. page, slot, id)
if slot == 0 or seq == 1 then redis.call('ZADD', root .. 'pages', page, page) end
redis.call('ZADD', root .. 'ready:' .. queue, ARGV[4], now .. seq_bytes .. id)
if redis.call('HINCRBY', root .. 'counts', 'ready:' .. queue, 1) == 1
  or redis.call('HEXISTS', root .. 'served', queue) == 0 then
  redis.call('HSET', root .. 'served', queue, redis.call('HGET', shard, 'picks') or 0)
end
if not row then redis.call('HSET', root .. 'queues', queue, '{}') end
wake_one('queue:' .. queue)
return 1
