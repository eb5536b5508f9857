-- Claims plain jobs; see parts/claim.lua for arguments and reply.
-- uses: out_of_memory claim
return claim_plain(2)
