"""Who of the fleet does a chore. All chores are harmless when doubled: leading only saves work."""

from __future__ import annotations

import contextlib

from tidemill.contract.store import Store
from tidemill.errors import StoreError


class Leader:
    def __init__(self, store: Store, worker: str) -> None:
        self._store, self._worker = store, worker
        self._leads: dict[str, None] = {}  # in order: a simulated history must replay

    async def leads(self, duty: str, lease: float) -> bool:
        if await self._store.lead(duty, self._worker, lease):
            self._leads[duty] = None
            return True
        self._leads.pop(duty, None)
        return False

    async def pass_on(self, duty: str) -> None:
        """Somebody else may do it better: whoever asks next has it."""
        if self._leads.pop(duty, ...) is None:
            await self._store.resign(duty, self._worker)

    async def resign(self) -> None:
        """Let another take over now; without it, it would when the lease is over."""
        for duty in self._leads:
            with contextlib.suppress(StoreError):
                await self._store.resign(duty, self._worker)
        self._leads.clear()
