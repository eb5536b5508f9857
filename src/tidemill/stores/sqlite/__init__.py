"""A store in one SQLite file, shared by any number of processes on one machine.

- Each process has one writer (`writer.py`), which commits all waiting requests together.
- All jobs are in one table with partial indexes. A claim reads all its jobs as one row of JSON, so the
  writer's thread waits for Python's interpreter lock only once.
- A transaction writes each changed counter, lane and history row once (`transaction.py`).
- Leases use the boot clock. Setting the wall clock does not move a lease, and a reboot ends all leases.
- A Unix datagram socket wakes idle processes (`wakeups.py`)."""

from tidemill.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
