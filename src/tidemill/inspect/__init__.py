"""Looking at jobs and queues, and steering them: what the command line and web pages are built on.

Nothing here is needed for running a job. Looking costs what is looked at: the size of the
store matters only to what reads every job a filter means (`count`, `each`, and a change by
filter), and those do it page by page.

`inspector` the API · `queue_views` what a queue is doing · `bulk` changes to many jobs ·
`steering` pauses and overrides · `facts` and `explanation` why a job waits, told by `waiting`,
`running` and `ended` in the `causes` programs know.
"""
