"""A store in one schema of a PostgreSQL database, for any number of machines.

- Each store method, such as insert or claim, is one statement or one transaction, with a deadline and retries
  (`connection.py`).
- Fast path: functions on the server insert, claim, settle and extend many simple jobs at once (`schema/`).
  Simple jobs have no key, pool, unique key or batch. Inserts and claims update no shared row, so they do not
  wait for each other.
- A claim of several ready jobs writes one row for all of them (a bulk claim). The row of each job is changed
  later, when the job is settled or an engine transaction needs it.
- All other methods run in the engine: rows are loaded (`load_jobs.py`, `load_lanes.py`, `pools.py`) and
  written together (`commit.py`). Engine transactions run one at a time, so the rows they have read stay
  valid.
- A session keeps no state, so the store works behind a connection pooler such as PgBouncer
  (`connection_pool.py`).
- All times come from the server's clock. Setting this clock moves no lease and no window (`clock.py`).
- NOTIFY wakes idle processes. It is sent only if a process listens (`wakeups.py`)."""

from tidemill.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
