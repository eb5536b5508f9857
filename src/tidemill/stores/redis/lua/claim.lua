-- The right to run ready jobs; arguments and answers are those of parts/claiming.lua.
-- uses: full claiming
return claim_plain(2)
