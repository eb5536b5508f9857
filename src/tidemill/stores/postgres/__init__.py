"""A store in one schema of a PostgreSQL database, for any number of machines.

How the store stays fast and safe:

- Each store method, such as insert or claim, is one statement or one transaction, with a deadline
  (`connection.py`). It is retried if the connection was lost or the server rolled it back.
- Fast path: functions on the server insert, claim, settle and extend simple jobs, many per call (`schema/`).
  Simple jobs have no key, pool, unique key or batch. Claims skip locked jobs. Inserts and claims only add
  rows to the tables of history and counts. They update no shared row, so they do not wait for each other.
- Ready jobs have small rows in the table `ready`. A claim of several jobs writes one row for all of them (a
  bulk claim). The row of each single job is changed later: when the job is settled, or when an engine
  transaction needs it.
- An engine transaction creates the jobs of a flow together with its document. Afterwards these jobs take the
  fast path, and their settlement adds the flow to the worklist.
- All other methods run in the engine: rows are loaded (`load_jobs.py`, `load_lanes.py`, `pools.py`) and
  written in one call (`commit.py`). Engine transactions run one after the other, so the rows they have read
  stay valid.
- A session keeps no state: no search path, session locks or temporary tables. So the store also works behind
  a connection pooler such as PgBouncer. Behind a pooler no statements are prepared (`connection_pool.py`).
- All times come from the server's clock. Setting this clock moves no lease and no window (`clock.py`).
- NOTIFY wakes idle processes. It is sent only if a process listens (`wakeups.py`)."""

from tidemill.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
