"""The reference store: runs the engine on records in memory. Nothing survives the process.

The model tests run every other store side by side with this one and compare each answer. So the order of
answers and of effects here is binding for all stores."""

from tidemill.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
