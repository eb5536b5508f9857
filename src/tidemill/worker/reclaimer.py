"""Takes back jobs whose owner fell silent, unless the clocks cannot be trusted."""

from __future__ import annotations

import asyncio

from tidemill.contract.store import Store
from tidemill.worker.log import logger

MAY_PART_BY = 2.0


class Reclaimer:
    """A lease is over by the store's clock. If that clock and this process's own moved by different
    amounts since the last look (a suspended machine, a stepped or restored host), living owners may
    only seem silent: they get one whole lease to say so before anything is taken from them.

    Every worker watches, also one that never led: after a suspend the leader's lease is over too, and
    whoever leads next must have seen the clocks from before."""

    def __init__(self, store: Store, lease: float) -> None:
        self._store, self._lease = store, lease
        self._seen: tuple[float, float] | None = None
        self._not_before = 0.0

    async def watch(self) -> bool:
        await self._trusted()
        return False

    async def reclaim(self) -> bool:
        if not await self._trusted():
            return False
        reclaimed = await self._store.reclaim()
        for job in reclaimed.ready:
            logger().warning("job reclaimed", job=job)
        for job in reclaimed.poison:
            logger().error("job failed", job=job, reason="poison")
        return False

    async def _trusted(self) -> bool:
        loop = asyncio.get_running_loop()
        before = loop.time()
        theirs = (await self._store.read_clock()).boot
        ours = (before + loop.time()) / 2
        seen, self._seen = self._seen, (theirs, ours)
        if seen is not None:
            apart = (theirs - seen[0]) - (ours - seen[1])
            if abs(apart) > MAY_PART_BY:
                self._not_before = loop.time() + self._lease
                logger().warning("clocks parted", seconds=round(apart, 3), reclaiming_again_in=self._lease)
        return loop.time() >= self._not_before
