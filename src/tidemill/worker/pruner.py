"""Drops what has been kept long enough, a thousand at a time so that no trip is a long one."""

from __future__ import annotations

from tidemill.contract.store import Store

AT_ONCE = 1000


class Pruner:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def prune(self) -> bool:
        return (await self._store.prune(AT_ONCE)).more
