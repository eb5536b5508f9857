"""The Redis store: implements every contract on one Redis server that many machines share.

Simple jobs (no key, pool, batch or unique key) take the fast path: one Lua script inserts, claims, settles or
extends many of them. See the modules `insert`, `claim`, `settle` and `leases`, and the scripts in `lua/`.

The engine handles all other jobs. `load` reads the rows that a store method needs, the engine runs the method
in Python, and `commit` writes its changes. The commit script first checks that the rows are unchanged."""

from tidemill.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
