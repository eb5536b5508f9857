"""What is counted, and goes on being counted when whoever counted it is gone.

    families      what is counted: a counter, a gauge or a histogram with its labels, and its values
    instruments   what a program counts with, in the memory of its process
    tally         what a process counted, told to the store every few seconds
    folding       tallies of processes that are gone, added up
    totals        what queues and pools did, minutes that the store has forgotten included

A number that grows must never fall, or whoever computes rates from it takes the difference for new events.
So a tally is told whole, never as a difference; whoever folds it seals it first, and its process, if it is
still there, begins another from there. No step of this can be done twice with effect, and none is needed for
running a job.
"""
