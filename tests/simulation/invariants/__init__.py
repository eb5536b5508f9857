"""The invariants, in one file per topic; each check cites its number. Some check every verb, some only the
end.

Not here: I12 (there are no schedules yet), and invariants that need a real store, process or network.
I26 is mostly covered by all the others: clocks are wrong in many histories, and every invariant must
hold."""
