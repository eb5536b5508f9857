"""`python -m tidemill.demo`: jobs on a SQLite file in a temporary folder, offline, in a few seconds.

It shows what goes well and what does not: retries, a failure for good, a pause that ends by
itself, a running job cancelled, and a queue that runs one job per key at a time. What is
promised about keys is counted inside the handlers, not read from the store.
"""
