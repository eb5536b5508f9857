-- A step that changes nothing is over; ARGV[2] is the step.
-- uses: turn
end_turn(ARGV[2])
