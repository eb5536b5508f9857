-- Ends the turn of the transaction ARGV[2], which has nothing to write.
-- uses: commit_turn
end_turn(ARGV[2])
