-- Wakes the topics ARGV[2], ARGV[3] …
-- uses: wakeups
local topics = {}
for at = 2, #ARGV do topics[#topics + 1] = ARGV[at] end
wake_listeners(topics)
