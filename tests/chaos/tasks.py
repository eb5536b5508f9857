"""What the processes under fire run. Configured by the environment, since they are started anew."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.chaos.ledger import Ledger
from tidemill import Context, Retention, Tidemill
from tidemill.clock import SystemClock

FOLDER = Path(os.environ.get("CHAOS_FOLDER", "."))
URL = os.environ.get("CHAOS_URL", f"sqlite:///{FOLDER / 'jobs.db'}")
SKEW = float(os.environ.get("CHAOS_SKEW", "0"))
LEDGER = Ledger(FOLDER)


class WrongClock(SystemClock):
    """Of a machine whose wall clock nobody has set."""

    def wall(self) -> float:
        return super().wall() + SKEW


app = Tidemill(URL, clock=WrongClock())
app.queue("default", crash_limit=50, keep_done=Retention(), keep_failed=Retention())


@app.task(name="work")
async def work(ctx: Context, milliseconds: float) -> None:
    LEDGER.write("started", ctx.job_id)
    await asyncio.sleep(milliseconds / 1000)
    LEDGER.write("committed", ctx.job_id)
