"""Measurements of Tidemill only: the cost of its worker, and whether lanes block each other."""

from __future__ import annotations

import asyncio
import queue
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import uvloop

from benchmarks.adapters.tidemill import TidemillProgram, TidemillSync
from benchmarks.case import Case
from benchmarks.empty_stores import EmptyStore
from benchmarks.measurements import latency

SKIPPED = 100
"""Starts to skip at the beginning: imports, first pages, first statements."""

SMALL = 1_000
PATIENCE = 30.0


class CpuSamples:
    """CPU time of the process, and of the event loop's thread, at given starts."""

    def __init__(self, at: set[int]) -> None:
        self._at, self._count = at, 0
        self._process: dict[int, float] = {}
        self._loop: dict[int, float] = {}

    def __call__(self, _: float) -> None:
        self._count += 1
        if self._count in self._at:
            self._process[self._count] = time.process_time()
            self._loop[self._count] = time.thread_time()

    def per_job(self, first: int, last: int) -> dict[str, float]:
        process, loop = self._process, self._loop
        return {
            "loop_us_per_job": (loop[last] - loop[first]) / (last - first) * 1e6,
            "cpu_us_per_job": (process[last] - process[first]) / (last - first) * 1e6,
        }


def worker_cost(case: Case) -> dict[str, float]:
    """CPU time per job. The event loop's thread runs the worker and the handlers; SQLite uses other
    threads."""
    jobs = int(case.size)
    cpu = CpuSamples({SKIPPED, jobs})
    _drained(case, jobs, cpu)
    return cpu.per_job(SKIPPED, jobs)


def small_backlog(case: Case) -> dict[str, float]:
    """CPU time per job with 1 000 ready jobs: a complete run of a worker, minus a run with one job."""
    whole = statistics.median(_run_cpu(case, SMALL) for _ in range(int(case.size)))
    start_and_stop = statistics.median(_run_cpu(case, 1) for _ in range(int(case.size)))
    return {"small_us": (whole - start_and_stop) / (SMALL - 1) * 1e6}


def _run_cpu(case: Case, jobs: int) -> float:
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        place = EmptyStore(case.place.store, folder)
        return _drained(replace(case, place=place, folder=Path(folder)), jobs, CpuSamples(set()))


def _drained(case: Case, jobs: int, cpu: CpuSamples) -> float:
    adapter = TidemillSync()
    adapter.open(case.place.url)
    adapter.preload(jobs)
    began = time.process_time()
    uvloop.run(adapter.program.drain(jobs, cpu))
    spent = time.process_time() - began
    adapter.close()
    return spent


def blocked_lane(case: Case, samples: int = 200) -> dict[str, float]:
    """Measures the latency of other lanes while one lane is at its limit with `size` jobs waiting."""
    app = TidemillProgram(case.place.url).app
    arrived: queue.SimpleQueue[float] = queue.SimpleQueue()
    app.queue("lanes", key_concurrency=1)

    @app.task(name="lane", queue="lanes", key=lambda key, sent: key)  # noqa: ARG005 - called by name
    async def lane(key: str, sent: float) -> None:
        if key == "busy":
            await asyncio.Event().wait()
        arrived.put(time.monotonic() - sent)

    async def serve() -> None:
        async with app:
            await app.worker(queues={"lanes": 1}).run()

    app.enqueue_many_sync(lane.job("busy", 0.0) for _ in range(int(case.size)))
    threading.Thread(target=lambda: uvloop.run(serve()), daemon=True).start()
    taken: list[float] = []
    for number in range(samples):
        time.sleep(0.005)
        lane.enqueue_sync(f"open-{number}", time.monotonic())
        taken.append(arrived.get(timeout=PATIENCE))
    return latency.summary(taken[1:])  # the worker started with the first job
