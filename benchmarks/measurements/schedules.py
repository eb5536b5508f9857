"""Lateness of the jobs of many schedules that are due at one instant, or within a period."""

from __future__ import annotations

import asyncio

import uvloop

from benchmarks.adapters.tidemill import TidemillProgram
from benchmarks.case import Case
from benchmarks.measurements.latency import summary
from tidemill import JobRequest, Task, Tidemill
from tidemill.schedules.settings import ScheduleUpsertOptions
from tidemill.telemetry.events import ScheduleFired

MADE_IN = 0.001
"""Seconds allowed per schedule for its creation: the first tick must come after all schedules exist."""

A_SECOND = 10_000 / 60
"""Due schedules per second if they are spread: ten thousand per minute."""


def at_once(case: Case) -> dict[str, float]:
    return uvloop.run(_late(TidemillProgram(case.place.url), int(case.size), 0.0))


def spread(case: Case) -> dict[str, float]:
    return uvloop.run(_late(TidemillProgram(case.place.url), int(case.size), case.size / A_SECOND))


async def _late(program: TidemillProgram, count: int, over: float) -> dict[str, float]:
    app, late, all_fired = program.app, list[float](), asyncio.Event()

    @app.on(ScheduleFired)
    def note(event: ScheduleFired) -> None:
        late.append(app.clock.wall() - event.tick)  # its job is in the store by now
        if len(late) == count:
            all_fired.set()

    async with app:
        await _make(app, program.noop, count, over)
        worker = app.worker(queues=["nobody"])
        running = asyncio.create_task(worker.run())
        await all_fired.wait()
        worker.stop()
        await running
    return summary(late)


async def _make(app: Tidemill, task: Task[[float, str], None], count: int, over: float) -> None:
    start = (await app.store.read_clock()).wall + max(1.0, MADE_IN * count)
    rows: list[tuple[str, JobRequest[None], ScheduleUpsertOptions]] = [
        (f"feed-{number}", task.job(0.0, ""), {"every": 3600, "start": start + over * number / count})
        for number in range(count)
    ]
    await app.schedules.upsert_many(rows)
