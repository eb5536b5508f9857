"""The application of the chaos processes. The environment configures it, because the processes are
restarted."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.chaos.event_files import EventFile
from tidemill import Context, Retention, Tidemill
from tidemill.clock import SystemClock

FOLDER = Path(os.environ.get("CHAOS_FOLDER", "."))
URL = os.environ.get("CHAOS_URL", f"sqlite:///{FOLDER / 'jobs.db'}")
SKEW = float(os.environ.get("CHAOS_SKEW", "0"))
EVENTS = EventFile(FOLDER)


class WrongClock(SystemClock):
    """The clock of a machine with a wrong wall time."""

    def wall(self) -> float:
        return super().wall() + SKEW


app = Tidemill(URL, clock=WrongClock())
app.queue("default", crash_limit=50, keep_done=Retention(), keep_failed=Retention())


@app.task(name="work")
async def work(ctx: Context, milliseconds: float) -> None:
    EVENTS.write("started", ctx.job_id)
    await asyncio.sleep(milliseconds / 1000)
    EVENTS.write("committed", ctx.job_id)
