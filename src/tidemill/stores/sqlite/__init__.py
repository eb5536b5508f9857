"""A store in one SQLite file, for as many processes of one machine as like to share it.

How it stays fast and safe:

* Everything that must be atomic together is one transaction of one writer per process
  (`writer.py`), with group commit: callers that wait at the same time share one fsync.
* One table with partial indexes; a claim reads jobs as one row of JSON, so that Python's
  interpreter lock is taken once a batch and a busy event loop does not stall the writer.
* Counts, lanes and history follow from a step's changes and are written once per step
  (`transaction.py`).
* Leases are on the boot clock: stepping the wall clock moves none of them, and another boot
  ends them all.
* Idle processes are woken through a Unix datagram socket (`wakeups.py`).
"""

from tidemill.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
