"""Speed beside its peers, on the same machine in the same run: on Redis, on PostgreSQL, in a SQLite file.

Every number comes from fresh processes on an empty store; the queues take turns inside each round, so that a
slow minute of the machine hits all of them. What is printed is the median of the rounds with its spread.
`python -m benchmarks.run --help` says what can be chosen.

`plan` says what is measured of whom, `targets` what Tidemill sets out to reach. `run` starts one `probe`
per measurement; its `measure` asks the queue through an `adapter`, and has workers started by `team`, which
note in a `tally` what they start. `report`, `chart` and `page` show it.
"""
