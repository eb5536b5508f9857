"""A worker whose steps append a line to a file, until it is killed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tidemill import Context, GiveUp, Retention, StepFailure, Tidemill

app = Tidemill(os.environ["TIDEMILL_URL"])
# Killed workers must not poison jobs, and early pruning must show up.
app.queue("default", crash_limit=50, keep_done=Retention(age=0), keep_failed=Retention(age=0))
witness = Path(os.environ["WITNESS"])
mended = witness.with_name("mended")


def note(ctx: Context) -> None:
    with witness.open("a") as file:
        file.write(f"{ctx.job_id} {ctx.generation}\n")


@app.task(name="split")
async def split(ctx: Context, count: int) -> list[int]:
    note(ctx)
    return list(range(count))


@app.task(name="part")
async def part(ctx: Context, number: int) -> int:
    await asyncio.sleep(0.02)
    note(ctx)
    if number == 2:
        raise GiveUp("this one does not work")
    return number


@app.task(name="brittle")
async def brittle(ctx: Context, number: int) -> int:
    note(ctx)
    if number == 1 and not mended.exists():
        raise GiveUp("it is broken")
    return number


@app.task(name="instead")
async def instead(ctx: Context, failure: StepFailure) -> int:
    note(ctx)
    return -int(failure.arguments["number"])


@app.task(name="join")
async def join(ctx: Context, numbers: list[int]) -> int:
    note(ctx)
    return sum(numbers)


if __name__ == "__main__":
    app.run_worker(lease=2.0, reclaim_every=0.5, prune_every=0.2, concurrency=4)
