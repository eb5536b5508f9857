-- One plain job that is due at once and does not expire: the commonest insert. A lone call costs what its
-- commands cost, so there are as few as can be.
--   ARGV[2]  queue
--   ARGV[3]  id
--   ARGV[4]  priority
--   ARGV[5]  its record up to its place in line, ARGV[6] on to its times, ARGV[7] what is behind them
-- Answers 1; 0 when it takes more than this script knows, and nothing was done.
-- uses: wall ring_one
local queue, id = ARGV[2], ARGV[3]
local row = redis.call('HGET', root .. 'queues', queue)
if row and row ~= '{}' or redis.call('HEXISTS', root .. 'remembered', id) == 1 then return 0 end

local seq = redis.call('HINCRBY', shard, 'seq', 1)
local place, now = struct.pack('>I6', seq), struct.pack('>d', wall)
if redis.call('HSETNX', root .. 'jobs', id, ARGV[5] .. place .. ARGV[6] .. now .. now .. ARGV[7]) == 0 then
  redis.call('HINCRBY', shard, 'seq', -1)
  return 1
end
local page, line = math.floor(seq / 100), seq % 100
redis.call('HSET', root .. 'page:' .. page, line, id)
if line == 0 or seq == 1 then redis.call('ZADD', root .. 'pages', page, page) end
redis.call('ZADD', root .. 'ready:' .. queue, ARGV[4], now .. place .. id)
if redis.call('HINCRBY', root .. 'counts', 'ready:' .. queue, 1) == 1
  or redis.call('HEXISTS', root .. 'served', queue) == 0 then
  redis.call('HSET', root .. 'served', queue, redis.call('HGET', shard, 'picks') or 0)
end
if not row then redis.call('HSET', root .. 'queues', queue, '{}') end
ring_one('queue:' .. queue)
return 1
