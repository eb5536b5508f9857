-- Returns wall and boot.
-- uses: clock
return { string.format('%.6f', clock.wall), string.format('%.6f', clock.boot) }
