"""Five hundred jobs, one of which kills its process."""

from __future__ import annotations

import asyncio
import os

from tests.chaos.tasks import URL
from tidemill import Tidemill

app = Tidemill(URL)


@app.task(name="maybe_poison")
async def maybe_poison(poison: bool) -> None:
    await asyncio.sleep(0.05)
    if poison:
        os._exit(1)
