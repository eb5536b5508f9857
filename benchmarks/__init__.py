"""Speed on SQLite, beside its peers, on the same machine in the same run.

Every number comes from a fresh process on a fresh folder; the queues take turns inside each
round, so that a slow minute of the machine hits all of them. What is printed is the median of
the rounds with its spread. `python -m benchmarks.run --help` says what can be chosen.
"""
