"""One worker process, with short leases: `python -m tests.quotas.http_worker`."""

from __future__ import annotations

import asyncio

from tests.quotas.http_tasks import app
from tidemill import logs


async def main() -> None:
    await app.work(concurrency=10, lease=2.0, reclaim_every=0.5, poll=0.5)


if __name__ == "__main__":
    logs.configure(level="warning")
    asyncio.run(main())
