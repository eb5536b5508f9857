"""Several jobs in one call. No verb is added: these are obligations of the others.

Only a store sees the jobs of all clients, so a store decides when enough of them wait, and how many of
them one call takes. `core.batching` is the rule, `core.calls` what a store does when the turn of a lane
comes.

B1  Jobs with a `batching` stand in lanes of their own: same queue, key, pools, keys of pools, task and part.
    They are claimed in calls, each the first jobs of one lane. When they have different rules, the
    first one's decides.
B2  Nothing starts before the lane is ripe (`core.batching.ripe_in`). Until then it costs the claims nothing,
    as any lane that is shut (P12). It is looked at when its time has come, when as many new jobs have come
    as it lacked, and when anything else became of its jobs. `next_due` counts with it; `lingers` tells of it.
B3  A call takes as many jobs as its rule allows (`core.batching.prefix`), as may run (J35 counts each job),
    as stand before one that is past its expiry, and as the pools let through: one at least, or P12.
B4  What the call takes of its pools (`core.batching.needs_of_call`) is one reservation of each, and belongs
    to the first job: P13 and P14 are about that one, and the others hold nothing.
B5  A call is one of a claim's `limit` and of a share. Its jobs come one behind the other, and each names the
    first (`Claimed.call`), which comes first while it is held. A repeated claim (J33) keeps calls together.
B6  A job that is split (`Split`) goes back uncharged, in its old place, to the lane of its part, which is
    ripe at once. It keeps to that part, until a person retries it.
B7  A job with a crash on record is ripe at once. It shares a call only with jobs of the same half of the
    call whose worker died; a job that crashed alone shares no call.
B8  Claimed by its id (J37), a job is a call of its own, ripe or not.
B9  Stepping the wall clock makes no lane wait longer than `linger` from the first claim that could have
    taken its jobs (I26).
B10 P10 is about what a call with that job alone takes.
"""
