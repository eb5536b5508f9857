-- Places in line for jobs that are about to come: ARGV[2] of them. Answers the last one.
-- Their pages are known from here on, whether or not the jobs come.
-- uses: root
local last = redis.call('HINCRBY', shard, 'seq', ARGV[2])
for page = math.floor((last - ARGV[2] + 1) / 100), math.floor(last / 100) do
  redis.call('ZADD', root .. 'pages', page, page)
end
return last
