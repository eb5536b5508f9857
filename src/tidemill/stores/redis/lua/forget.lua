-- What has been kept long enough: ids of jobs that are gone, minutes, claims that were never settled, workers.
--   ARGV[2]  how many of each at most
--   ARGV[3]  from which minute on history is kept
--   ARGV[4]  for how many seconds a silent worker and an unsettled claim are
--   ARGV[5]  how many ids may be remembered
--   ARGV[6]  how many seconds of its term an id beyond that may have left
-- Answers how many ids are forgotten.
-- uses: clock records many
local limit, oldest, patience = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

-- A term is over when both clocks say so; after another boot only the wall clock can tell.
local function is_over(text, left)
  local _, boot, boot_id = unpack_('>ddHc0', text, 16)
  return boot_id ~= clock.boot_id or clock.boot + left >= boot
end

-- Forgets so many ids whose term is over or has no more than so many seconds left. Answers how many.
local function forget(many, left)
  if many <= 0 then return 0 end
  local until_ = string.format('%.17g', clock.wall + left)
  local over, ids = redis.call('ZRANGEBYSCORE', root .. 'forget', '-inf', until_, 'LIMIT', 0, many), {}
  for at, text in ipairs(get_many(root .. 'remembered', over)) do
    if not text or is_over(text, left) then ids[#ids + 1] = over[at] end
  end
  call_many('HDEL', root .. 'remembered', ids)
  call_many('ZREM', root .. 'forget', ids)
  return #ids
end

local forgotten = forget(limit, 0)
local surplus = redis.call('ZCARD', root .. 'forget') - tonumber(ARGV[5])
forgotten = forgotten + forget(math.min(limit - forgotten, surplus), tonumber(ARGV[6]))

local minutes = redis.call('ZRANGEBYSCORE', root .. 'minutes', '-inf', '(' .. oldest, 'LIMIT', 0, limit)
for _, member in ipairs(minutes) do
  local key, field = string.match(member, '^(.*) (%d+:.*)$')
  redis.call('HDEL', root .. key, field)
end
call_many('ZREM', root .. 'minutes', minutes)

redis.call('ZREMRANGEBYSCORE', root .. 'unheard', '-inf', clock.wall - patience)

local silent = redis.call('ZRANGEBYSCORE', root .. 'alive', '-inf', '(' .. string.format('%.17g', clock.boot - patience))
for _, worker in ipairs(silent) do
  if redis.call('EXISTS', root .. 'held:' .. worker) == 0 then
    redis.call('HDEL', root .. 'workers', worker)
    redis.call('HDEL', root .. 'numbers', worker)
    redis.call('ZREM', root .. 'alive', worker)
  end
end
return forgotten
