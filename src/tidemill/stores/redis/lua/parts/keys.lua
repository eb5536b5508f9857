-- The prefix of every key, and the hash of the shard's own values.
local root = KEYS[1]
local shard = root .. 'shard'
