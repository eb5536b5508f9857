"""The Redis store: implements every contract on one Redis server that many machines share.

Simple jobs (no key, pool, batch or unique key) take the fast path: one Lua script inserts, claims, settles or
extends many of them. The scripts are in `lua/`.

The engine handles all other jobs. `load` reads the rows, the engine runs in Python, and `commit` writes the
changes if the rows are unchanged."""

from tidemill.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
