"""SAQ on PostgreSQL."""

from __future__ import annotations

import logging

from saq import Queue

from benchmarks.adapters.saq import Saq


class SaqOnPostgres(Saq):
    settings = f"{Saq.settings}, 20 connections (its default); jobs forgotten when done (ttl=-1)"
    acknowledges = "deletes the job after it ran; a dead worker's jobs run again after a sweep"

    async def connect(self, url: str) -> None:
        logging.disable(logging.WARNING)
        self._queue = Queue.from_url(url)
        await self._queue.connect()
