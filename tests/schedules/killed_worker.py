"""A worker whose schedules tick every second, until it is killed."""

from __future__ import annotations

import os

from tidemill import Tidemill

app = Tidemill(os.environ["TIDEMILL_URL"])


@app.task(name="note")
async def note() -> None: ...


for name in ("a", "b", "c"):
    app.schedule(name, note, every=1, start=float(os.environ["START"]), catch_up="all", overlap="allow")

if __name__ == "__main__":
    app.run_worker()
