"""Drops what has been kept long enough, a thousand at a time so that no trip is a long one."""

from __future__ import annotations

from tidemill.contract.store import Store
from tidemill.worker.bookkeeper import Bookkeeper

AT_ONCE = 1000


class Pruner:
    """What goes was added up before."""

    def __init__(self, store: Store, bookkeeper: Bookkeeper) -> None:
        self._store, self._bookkeeper = store, bookkeeper

    async def prune(self) -> bool:
        await self._bookkeeper.keep()
        return (await self._store.prune(AT_ONCE)).more
