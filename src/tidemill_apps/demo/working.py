"""A worker of the application in this process, as long as the demo looks at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidemill import Tidemill

SLOTS = 10


@asynccontextmanager
async def working(app: Tidemill) -> AsyncIterator[None]:
    async with app:
        worker = app.worker(concurrency=SLOTS)
        running = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await running
