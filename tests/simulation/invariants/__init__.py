"""One file per invariant, named by its number. Some look at every verb, some at the end.

Not here: I12 (there are no schedules yet) and what needs a real store, process or network.
I26 is mostly this: clocks go wrong in many histories, and all the others must hold.
"""
