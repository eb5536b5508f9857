"""Flows: graphs of jobs, each made when those before it are done.

The store keeps a flow as a record it does not look into, and notes whenever one of its jobs ends. Whoever
knows the tasks reads the record and what has happened (`advancing`), decides with `core.graph` what follows,
makes those jobs (`making`) and hands both to the store, which takes them together or, when somebody else was
quicker, not at all. So any number of workers may advance the same flow, and one that dies in the middle has
done nothing. Ids of jobs are made of the flow, the step and an index: what is made twice is made once.

Results stay with the jobs. A job is told which of them it reads (`core.flow_jobs.InFlow`), and gets them when
it runs (`results`).
"""
