"""A producer of paid calls: records an id only after the store has accepted it."""

from __future__ import annotations

import asyncio
import itertools
import sys

from tests.chaos.event_files import EventFile
from tests.chaos.paid_tasks import app, by_module, by_state
from tests.chaos.tasks import FOLDER
from tidemill.errors import StoreError


async def main(per_second: float) -> None:
    ledger = EventFile(FOLDER)
    async with app:
        for number in itertools.count():
            try:
                job = await (by_state if number % 2 else by_module).enqueue(number)
                ledger.write("accepted", job.id)
            except StoreError as error:
                ledger.write("refused", type(error).__name__)
            await asyncio.sleep(1 / per_second)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
