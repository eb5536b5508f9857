-- Leases are kept apart from records: a heartbeat writes one number for each job.
-- uses: records
local function lease_of(id, record)
  if sub(record, 1, 1) ~= 'x' then return '' end
  local _, _, seq, _, _, _, _, _, _, queue = head(record)
  return redis.call('HGET', root .. 'running:' .. queue, member_of(seq, id)) or ''
end
