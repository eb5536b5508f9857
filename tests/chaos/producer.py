"""A producer for the chaos tests: records an id only after the store has accepted it."""

from __future__ import annotations

import asyncio
import itertools
import sys

from tests.chaos.event_files import EventFile
from tests.chaos.tasks import FOLDER, app, work
from tidemill.errors import StoreError


def milliseconds(n: int) -> float:
    """Returns the duration of a job: most are quick; some run long enough to be hit by a fault."""
    return 600.0 if n % 10 == 5 else n % 3


async def main(per_second: float) -> None:
    ledger, size = EventFile(FOLDER), max(20, int(per_second / 5))
    async with app:
        for number in itertools.count():
            batch = [work.using(delay=0.2 if n % 10 == 0 else 0.0).job(milliseconds(n)) for n in range(size)]
            try:
                for job in await app.enqueue_many(batch):
                    ledger.write("accepted", job.id)
            except StoreError as error:
                ledger.write("refused", type(error).__name__)
            await asyncio.sleep(size / per_second if number else 0)


asyncio.run(main(float(sys.argv[1])))
