"""What the processes under fire run. Configured by the environment, since they are started anew."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.chaos.ledger import Ledger
from tidemill import Context, Retention, Tidemill

FOLDER = Path(os.environ.get("CHAOS_FOLDER", "."))
LEDGER = Ledger(FOLDER)

app = Tidemill(f"sqlite:///{FOLDER / 'jobs.db'}")
app.queue("default", crash_limit=50, keep_done=Retention(), keep_failed=Retention())


@app.task(name="work")
async def work(ctx: Context, milliseconds: float) -> None:
    LEDGER.write("started", ctx.job_id)
    await asyncio.sleep(milliseconds / 1000)
    LEDGER.write("committed", ctx.job_id)
