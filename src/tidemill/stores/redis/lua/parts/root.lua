-- What every key begins with, and the hash of what there is one of.
local root = KEYS[1]
local shard = root .. 'shard'
