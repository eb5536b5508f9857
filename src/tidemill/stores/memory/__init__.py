"""The reference store: runs the engine on records in memory. Nothing survives the process.

The model tests compare every answer of the database stores with the answer of this store, including its
order."""

from tidemill.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
