"""Who of the fleet does a chore. All chores are harmless when doubled: leading only saves work."""

from __future__ import annotations

import contextlib

from tidemill.contract.store import Store
from tidemill.errors import StoreError


class Leader:
    def __init__(self, store: Store, worker: str) -> None:
        self._store, self._worker = store, worker
        self._leads: set[str] = set()

    async def leads(self, duty: str, lease: float) -> bool:
        if await self._store.lead(duty, self._worker, lease):
            self._leads.add(duty)
            return True
        self._leads.discard(duty)
        return False

    async def resign(self) -> None:
        """Let another take over now; without it, it would when the lease is over."""
        for duty in self._leads:
            with contextlib.suppress(StoreError):
                await self._store.resign(duty, self._worker)
        self._leads.clear()
