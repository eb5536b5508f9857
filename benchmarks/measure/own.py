"""What only Tidemill is asked: what its worker costs, and whether lanes wait for each other."""

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

from benchmarks.adapters.tidemill import Program, Sync
from benchmarks.case import Case
from benchmarks.measure import latency
from benchmarks.places import Place

SKIPPED = 100
"""Starts left out at the front: imports, first pages, first statements."""

SMALL = 1_000
PATIENCE = 30.0


class Cpu:
    """CPU of the process, and of the event loop's thread alone, at some of the starts."""

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
    """The event loop's thread runs the worker and the handlers; SQLite has threads of its own."""
    jobs = int(case.size)
    cpu = Cpu({SKIPPED, jobs})
    _drained(case, jobs, cpu)
    return cpu.per_job(SKIPPED, jobs)


def small(case: Case) -> dict[str, float]:
    """CPU per job with 1 000 ready: a worker's whole run, less that of a run with one job."""
    whole = statistics.median(_run_cpu(case, SMALL) for _ in range(int(case.size)))
    start_and_stop = statistics.median(_run_cpu(case, 1) for _ in range(int(case.size)))
    return {"small_us": (whole - start_and_stop) / (SMALL - 1) * 1e6}


def _run_cpu(case: Case, jobs: int) -> float:
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        place = Place(case.place.store, folder)
        return _drained(replace(case, place=place, folder=Path(folder)), jobs, Cpu(set()))


def _drained(case: Case, jobs: int, cpu: Cpu) -> float:
    adapter = Sync()
    adapter.open(case.place.url)
    adapter.preload(jobs)
    began = time.process_time()
    uvloop.run(adapter.program.drain(jobs, cpu))
    spent = time.process_time() - began
    adapter.close()
    return spent


def blocked_lane(case: Case, samples: int = 200) -> dict[str, float]:
    """One lane is full to its limit with `size` jobs behind; jobs of other lanes come singly."""
    app = Program(case.place.url).app
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
    return latency.summary(taken[1:])  # the worker started with the first
