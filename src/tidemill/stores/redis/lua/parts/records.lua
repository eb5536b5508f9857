-- The layout of a job's record (stores/redis/records.py), as far as scripts look into it.
local EXPIRES, CLAIMED, NEWS, ENDED, RESULT, FATE, MORE = 1, 2, 4, 8, 16, 32, 64
local SPECIAL, HOLDS, ALONE, LANED = 128, 256, 512, 1024

local band, bor, bnot = bit.band, bit.bor, bit.bnot
local sub, byte, pack, unpack_ = string.sub, string.byte, struct.pack, struct.unpack

-- state, flags, seq, priority, created, due, attempts, crashes, generation, queue, and where the next begins
local function head(record)
  return unpack_('>c1HI6hddIIIHc0', record)
end

-- Where the piece behind the queue begins.
local function rest_of(record)
  local high, low = byte(record, 40, 41)
  return 42 + 256 * high + low
end

-- The flags, and where the piece behind the queue begins: all that most records are looked at for.
local function flags_and_rest(record)
  local high, low = byte(record, 2, 3)
  return 256 * high + low, rest_of(record)
end

local function has(flags, flag)
  return band(flags, flag) ~= 0
end

-- Where the claim stands, or would stand.
local function claim_at(flags, at)
  if has(flags, EXPIRES) then at = at + 8 end
  if has(flags, HOLDS) then at = at + 8 end
  return at
end

-- Where the piece behind a claim begins.
local function after_claim(record, flags, at)
  if has(flags, CLAIMED) then
    at = at + 38 + unpack_('>H', record, at + 36)
  end
  return at
end

-- Where the piece behind a text with its length begins, if there is one.
local function after_text(record, present, at)
  if present then
    at = at + 4 + unpack_('>I', record, at)
  end
  return at
end

-- What is kept of a job beyond its usual fields, as records.More; nil of most.
local function more_of(record, flags, rest)
  if not has(flags, MORE) then return nil end
  local at = after_claim(record, flags, claim_at(flags, rest))
  at = after_text(record, has(flags, NEWS), at)
  if has(flags, ENDED) then at = at + 8 end
  at = after_text(record, has(flags, RESULT), at)
  at = after_text(record, has(flags, FATE), at)
  at = at + 2 + unpack_('>H', record, at)
  return cjson.decode((unpack_('>Ic0', record, at)))
end

-- Two names in one key, as keys.py has them.
local function both(first, second)
  return #first .. ':' .. first .. ':' .. second
end

-- The jobs that may hold a unique key.
local function unique_key(queue, key)
  return 'unique:' .. both(queue, key)
end

-- How every order but that of lanes names a job.
local function member_of(seq, id)
  return pack('>I6', seq) .. id
end

local function id_of(member)
  return sub(member, 7)
end
