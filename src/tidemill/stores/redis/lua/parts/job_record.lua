-- The layout of a job's record (stores/redis/job_codec.py), as far as scripts read it.
local EXPIRES, CLAIMED, REPORT, ENDED, RESULT, FAILURE, OPTIONAL = 1, 2, 4, 8, 16, 32, 64
local ENGINE_ONLY, HOLDS, ALONE, KEYED = 128, 256, 512, 1024

local band, bor, bnot = bit.band, bit.bor, bit.bnot
local sub, byte, pack, unpack_ = string.sub, string.byte, struct.pack, struct.unpack

-- Returns state, flags, seq, priority, created, due, attempts, crashes, generation, queue, offset of the next
-- part.
local function head(record)
  return unpack_('>c1HI6hddIIIHc0', record)
end

-- Returns the offset of the part after the queue.
local function rest_of(record)
  local high, low = byte(record, 40, 41)
  return 42 + 256 * high + low
end

-- Returns the flags and the offset of the part after the queue: enough for most uses.
local function flags_and_rest(record)
  local high, low = byte(record, 2, 3)
  return 256 * high + low, rest_of(record)
end

local function has_flag(flags, flag)
  return band(flags, flag) ~= 0
end

-- Returns the offset of the claim, or where it would be.
local function claim_at(flags, at)
  if has_flag(flags, EXPIRES) then at = at + 8 end
  if has_flag(flags, HOLDS) then at = at + 8 end
  return at
end

-- Returns the offset of the part after the claim.
local function after_claim(record, flags, at)
  if has_flag(flags, CLAIMED) then
    at = at + 38 + unpack_('>H', record, at + 36)
  end
  return at
end

-- Returns the offset after a text with a length prefix, if it is present.
local function after_text(record, present, at)
  if present then
    at = at + 4 + unpack_('>I', record, at)
  end
  return at
end

-- Returns the optional fields (job_codec.OptionalFields); nil for most jobs.
local function optional_fields(record, flags, rest)
  if not has_flag(flags, OPTIONAL) then return nil end
  local at = after_claim(record, flags, claim_at(flags, rest))
  at = after_text(record, has_flag(flags, REPORT), at)
  if has_flag(flags, ENDED) then at = at + 8 end
  at = after_text(record, has_flag(flags, RESULT), at)
  at = after_text(record, has_flag(flags, FAILURE), at)
  at = at + 2 + unpack_('>H', record, at)
  return cjson.decode((unpack_('>Ic0', record, at)))
end

-- Joins two names in one key, like keys.py.
local function join_names(first, second)
  return #first .. ':' .. first .. ':' .. second
end

-- Returns the key of the jobs that may hold a unique key.
local function unique_key(queue, key)
  return 'unique:' .. join_names(queue, key)
end

-- Returns the member of a job in every index except lanes.
local function member_of(seq, id)
  return pack('>I6', seq) .. id
end

local function id_of(member)
  return sub(member, 7)
end
