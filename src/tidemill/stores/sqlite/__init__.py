"""A store in one SQLite file, shared by any number of processes on one machine.

How the store stays fast and safe:

- Each process has one writer (`writer.py`). The writer commits all waiting requests together, so they
  share one fsync.
- All jobs are in one table with partial indexes. A claim reads all its jobs as one row of JSON. So the
  writer's thread waits for Python's interpreter lock once per claim and not once per job, and a busy event
  loop does not stall it.
- A transaction collects its changes of counters, lanes and history and writes each of them once
  (`transaction.py`).
- Leases use the boot clock. Setting the wall clock does not move them, and a reboot ends all of them.
- A Unix datagram socket wakes idle processes (`wakeups.py`)."""

from tidemill.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
