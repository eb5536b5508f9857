"""How late the jobs of many schedules are that all come due in one second, or spread over a minute.

python -m benchmarks.schedules [sqlite] [10000]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tidemill import JobRequest, Tidemill
from tidemill.schedules.settings import ScheduleOptions
from tidemill.telemetry.events import ScheduleFired

AHEAD = 5.0


async def measure(url: str, count: int, spread: float) -> None:
    app = Tidemill(url)
    late: list[float] = []
    all_fired = asyncio.Event()

    @app.on(ScheduleFired)
    def note(event: ScheduleFired) -> None:
        late.append(app.clock.wall() - event.tick)  # by now its job is in the store
        if len(late) == count:
            all_fired.set()

    @app.task
    async def refresh(feed: int) -> None: ...

    async with app:
        loop = asyncio.get_running_loop()
        began = loop.time()
        per = max(1.0, AHEAD * count / 5000)
        start = (await app.store.read_clock()).wall + per
        rows: list[tuple[str, JobRequest[None], ScheduleOptions]] = [
            (
                f"feed-{number}",
                refresh.job(number),
                {"every": 3600, "start": start + spread * number / count},
            )
            for number in range(count)
        ]
        await app.schedules.upsert_many(rows)
        print(f"{url}: {count} schedules made in {loop.time() - began:.1f} s", end="; ")
        worker = app.worker(queues=["nobody"])
        running = asyncio.create_task(worker.run())
        await all_fired.wait()
        worker.stop()
        await running
    late.sort()
    middle, last = late[len(late) // 2], late[-1]
    print(f"due within {spread:g} s: median {middle:.3f} s late, last {last:.3f} s", flush=True)


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) > 1 else "memory"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    for spread in (0.0, 10.0):
        with tempfile.TemporaryDirectory() as folder:
            url = "memory://" if kind == "memory" else f"sqlite:///{Path(folder) / 'jobs.db'}"
            asyncio.run(measure(url, count, spread))


if __name__ == "__main__":
    main()
