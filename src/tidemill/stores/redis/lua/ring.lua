-- Rings the topics ARGV[2], ARGV[3] …
-- uses: bell
local topics = {}
for at = 2, #ARGV do topics[#topics + 1] = ARGV[at] end
ring(topics)
