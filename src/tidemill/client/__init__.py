"""Making jobs and following them.

A `Task` turns a call into a `JobRequest`; the `Client` sends requests to the store and
hands out `JobHandle`s. Every event loop has its own session with the store, because
futures and wake-ups belong to a loop; programs without a loop share one kept by a thread.
"""
