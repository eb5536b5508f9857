-- For scripts that free memory on a full server, or keep alive the workers that do. A full server refuses a
-- script whose first write may need memory, but allows such writes after one that needs none. This part
-- therefore comes first and deletes a key that does not exist.
-- uses: keys
redis.call('DEL', root .. 'nothing')
