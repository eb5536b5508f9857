"""One of many processes on the same file: inserts, claims and settles as fast as it can, for a while."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from tests.chaos.event_files import EventFile
from tidemill.clock import SystemEntropy
from tidemill.core.claims import ClaimRequest, QueueShare, Settlement
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.outcomes import Success, WriteAnswer
from tidemill.stores.sqlite import SqliteStore


async def main(path: Path, seconds: float) -> None:
    ledger, ids = EventFile(path.parent), SystemEntropy()
    store = await SqliteStore(path).open()
    worker, number = ids.new_id(), 0
    held: list[Settlement] = []
    until = time.monotonic() + seconds
    while held or time.monotonic() < until:
        if time.monotonic() < until:
            jobs = tuple(NewJob(id=ids.new_id(), task="t", payload=b"{}") for _ in range(5))
            for inserted in (await store.insert([JobGroup("q", jobs)]))[0]:
                ledger.write("accepted", inserted.id)
        number += 1
        request = ClaimRequest(
            worker=worker, number=number, shares=(QueueShare("q", 5),), limit=5, lease=60.0
        )
        settled = await store.settle(held, request if time.monotonic() < until else None)
        for item, answer in zip(held, settled.answers, strict=True):
            ledger.write("settled", item.job, item.fence, answer)
            assert answer is WriteAnswer.OK
        claims = [] if settled.claims is None else settled.claims.jobs
        held = [Settlement(job.id, job.fence, job.claim, Success()) for job in claims]
    await store.close()


asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
