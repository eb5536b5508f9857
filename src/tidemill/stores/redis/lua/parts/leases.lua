-- Leases are stored apart from records, so that a heartbeat writes one number per job.
-- uses: job_record
local function lease_of(id, record)
  if sub(record, 1, 1) ~= 'x' then return '' end
  local _, _, seq, _, _, _, _, _, _, queue = head(record)
  return redis.call('HGET', root .. 'running:' .. queue, member_of(seq, id)) or ''
end
