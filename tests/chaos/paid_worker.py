"""A worker of paid calls for the chaos tests, with short leases."""

from __future__ import annotations

import asyncio
import os
import sys

from tests.chaos.paid_tasks import WORKER, app
from tests.chaos.worker import record_settles


async def main(concurrency: int) -> None:
    os.environ[WORKER] = str(os.getpid())
    record_settles(type(app.store))
    await app.work(concurrency=concurrency, lease=2.0, reclaim_every=0.5, poll=0.5)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
