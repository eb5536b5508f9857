"""The reference store: runs the engine on records in memory. Nothing survives the process.

The model tests compare each answer of every store with this one. So its order of answers and of effects binds
all stores."""

from tidemill.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
