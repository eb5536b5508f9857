"""The specification: the contracts kept by applying the pure core to dictionaries.

Other stores are translations of this one, and a model test runs them in lockstep with it,
so what a docstring here fixes (an order of answers, what happens first) holds for all.

`records` keeps jobs and indexes, `moves` what follows when a job changes state, each
verb has a file, and `store` is the object everybody uses. Nothing survives the process.
"""

from tidemill.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
