"""`python -m tidemill.demo`: jobs on a SQLite file in the working directory, offline, in a few seconds.

It shows what goes well and what does not: retries, a failure for good, a job that kills its
process, a pause that ends by itself, a running job cancelled, and a queue that runs one job per
key at a time. What is promised is counted inside the handlers (`witness.py`), not read from the
store, and a promise that was not kept makes the exit code 1. The file stays, to be looked at.
"""
