"""The Redis store: the same promises across machines.

Jobs that are plain (no key, pools, batches or unique key) are inserted, claimed, settled and extended by
one short script for many at once (`insert`, `claim`, `settle`, `extend`, and `lua/` of the same names). The
rest is the engine's: rows are looked up (`looks`, `answers`), the verb runs here, and what it changed is
written by one script that first compares what the verb rested on (`slow`, `changing`).
"""

from tidemill.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
