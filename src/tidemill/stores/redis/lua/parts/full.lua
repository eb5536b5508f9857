-- For scripts that work off what a full server has too much of, or keep alive who does.
-- Such a server refuses a script whose first write may need memory, and none behind a write that needs none. So
-- this one comes first, and does nothing.
-- uses: root
redis.call('DEL', root .. 'nothing')
