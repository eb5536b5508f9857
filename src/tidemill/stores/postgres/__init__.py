"""A store in one schema of a PostgreSQL database, for any number of machines.

- Each store method, such as insert or claim, is one statement or one transaction, with a deadline and retries
  (`connection.py`).
- Fast path: functions on the server insert, claim, settle and extend many simple jobs at once (`schema/`).
  Simple jobs have no key, pool, unique key or batch.
- A claim of several ready jobs writes one row for all of them (a bulk claim). The row of each job is changed
  later.
- All other methods run in the engine: rows are loaded (`load_jobs.py`, `load_lanes.py`, `pools.py`) and
  written together (`commit.py`). Engine transactions run one at a time.
- A session keeps no state, so the store works behind a connection pooler such as PgBouncer.
- All times come from the server's clock. Setting this clock moves no lease and no window (`clock.py`).
- NOTIFY wakes idle processes (`wakeups.py`)."""

from tidemill.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
