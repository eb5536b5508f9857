"""Start latency on SQLite across processes, beside neighbours that keep the disk busy.

    python -m benchmarks.sqlite_latency [jobs] [--neighbours 2] [--folder .]

One process sends 100 jobs per second, another runs them. Each neighbour writes 2 MiB to the same disk and
calls fsync, again and again, as a database server does. The latency of a job is the time from the call of
`enqueue` to the start of its handler, the commit of the job included. Exits with 1 if p99 is over 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from tidemill import Task, Tidemill

JOBS_PER_SECOND = 100
MAX_P99 = 0.1
NEIGHBOUR_BYTES = 2**21
RESULT_TIMEOUT = 60.0

SPAWN = multiprocessing.get_context("spawn")


def application(path: Path) -> tuple[Tidemill, Task[[float], float]]:
    app = Tidemill(f"sqlite:///{path}")

    @app.task(name="start")
    async def start(sent: float) -> float:
        return time.monotonic() - sent

    return app, start


def work(path: Path) -> None:
    app, _ = application(path)
    asyncio.run(app.work())


def write_and_sync(folder: Path) -> None:
    file = folder / f"neighbour-{os.getpid()}"
    while True:
        with file.open("wb") as opened:
            opened.write(b"x" * NEIGHBOUR_BYTES)
            opened.flush()
            os.fsync(opened.fileno())
        file.unlink()


async def send(path: Path, jobs: int) -> list[float]:
    """Returns the latency of each job, without the first one, which waits for the worker's start."""
    app, start = application(path)
    async with app:
        await (await start.enqueue(time.monotonic())).result(timeout=RESULT_TIMEOUT)
        began = time.monotonic()
        sent = []
        for number in range(jobs):
            await asyncio.sleep(max(0.0, began + number / JOBS_PER_SECOND - time.monotonic()))
            sent.append(await start.enqueue(time.monotonic()))
        return [await job.result(timeout=RESULT_TIMEOUT) for job in sent]


@contextmanager
def running(processes: Sequence[BaseProcess]) -> Iterator[None]:
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def measure(folder: Path, jobs: int, neighbours: int) -> list[float]:
    path = folder / "jobs.db"
    worker = SPAWN.Process(target=work, args=(path,))
    hogs = [SPAWN.Process(target=write_and_sync, args=(folder,)) for _ in range(neighbours)]
    with running([worker, *hogs]):
        return sorted(asyncio.run(send(path, jobs)))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("jobs", type=int, nargs="?", default=1000)
    parser.add_argument("--neighbours", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(), help="a folder on the measured disk")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder, prefix="sqlite-latency-") as folder:
        latencies = measure(Path(folder).absolute(), asked.jobs, asked.neighbours)
    p50, p99 = (latencies[int(len(latencies) * share)] for share in (0.5, 0.99))
    verdict = "ok" if p99 <= MAX_P99 else "too slow"
    print(
        f"{len(latencies)} jobs, {asked.neighbours} neighbours: p50 {p50 * 1e3:.1f} ms, "
        f"p99 {p99 * 1e3:.1f} ms, max {latencies[-1] * 1e3:.1f} ms; "
        f"p99 must be at most {MAX_P99 * 1e3:.0f} ms: {verdict}"
    )
    return 0 if p99 <= MAX_P99 else 1


if __name__ == "__main__":
    sys.exit(main())
