-- Allocates ARGV[2] sequence numbers for new jobs and returns the last one. It registers their pages at once,
-- whether or not the jobs are inserted.
-- uses: keys
local last = redis.call('HINCRBY', shard, 'seq', ARGV[2])
for page = math.floor((last - ARGV[2] + 1) / 100), math.floor(last / 100) do
  redis.call('ZADD', root .. 'pages', page, page)
end
return last
