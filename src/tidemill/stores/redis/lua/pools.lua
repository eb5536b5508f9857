-- Returns the clocks (wall, boot, boot id), and every pool with its settings.
-- uses: clock
local found = { string.format('%.17g', clock.wall), string.format('%.17g', clock.boot), clock.boot_id }
for _, word in ipairs(redis.call('HGETALL', root .. 'pools')) do found[#found + 1] = word end
return found
