"""A store in one schema of a PostgreSQL database, for any number of machines.

How it stays fast and safe:

* A verb is one statement or one transaction (`connection.py`), within a deadline, and done again when the
  connection was lost or the server rolled it back.
* Plain jobs (no key, pools, unique key or batches) are inserted, claimed, settled and extended by functions
  of the server, a whole batch in one call (`schema/0004-plain.sql`). No row is locked by every insert or
  claim: jobs that somebody has locked are passed over; minutes of history, and what becomes of the counts,
  are appended.
* What may start stands in a line of slim rows, and jobs that are claimed together are one row until they are
  settled, or somebody has to know more of them (`schema/0003-folded.sql`).
* Jobs of flows are made by a slow step, with the course they come of, and then go the way of plain ones:
  whoever settles them notes their ends (`schema/0006-courses.sql`).
* Everything else is the engine's verbs on rows that are looked up (`source.py`) and written in one call
  (`commit.py`). Such steps come one after the other, so that what they read stays as it is.
* Nothing is kept in a session, so that it works behind a pooler: no search path, no session locks, no
  temporary tables; what is prepared there is not used where a pooler stands between (`links.py`).
* The server's clock is the truth, and a step of it moves no lease and no window (`clocks.py`).
* Idle processes are woken by NOTIFY, and only when one of them is parked (`wakeups.py`).
"""

from tidemill.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
