"""SAQ on Redis."""

from __future__ import annotations

import logging

from saq import Queue

from benchmarks.adapters.saq import Saq


class SaqOnRedis(Saq):
    settings = f"{Saq.settings}; jobs forgotten when done (ttl=-1)"
    acknowledges = "removes the job after it ran; a dead worker's jobs run again after a sweep"

    async def connect(self, url: str) -> None:
        logging.disable(logging.WARNING)
        self._queue = Queue.from_url(url)
        await self._queue.connect()
