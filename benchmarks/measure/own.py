"""What only Tidemill is asked: bulk enqueue, growth, and lanes that do not wait for each other."""

from __future__ import annotations

import asyncio
import queue
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.adapters import Adapter
from benchmarks.adapters.tidemill import Async, Sync
from benchmarks.measure import latency

SKIPPED = 100
"""Starts left out at the front: imports, first pages, first statements."""

SLICE = 10_000
SMALL = 1_000


def enqueue_bulk(adapter: Adapter, jobs: int) -> dict[str, float]:
    if not isinstance(adapter, Async):
        raise TypeError("only Tidemill enqueues in bulk")
    began = time.perf_counter()
    adapter.enqueue_bulk(jobs)
    return {"jobs_per_second": jobs / (time.perf_counter() - began)}


class Marks:
    """CPU of the process, and of the event loop's thread alone, at some of the starts."""

    def __init__(self, at: set[int]) -> None:
        self._at, self._count = at, 0
        self.process: dict[int, float] = {}
        self.loop: dict[int, float] = {}
        self._last = time.perf_counter()
        self.longest_gap = 0.0

    def __call__(self, _: float) -> None:
        self._count += 1
        if self._count in self._at:
            self.process[self._count] = time.process_time()
            self.loop[self._count] = time.thread_time()
        now = time.perf_counter()
        if self._count > 1:
            self.longest_gap = max(self.longest_gap, now - self._last)
        self._last = now

    def cpu_us(self, first: int, last: int) -> float:
        return (self.process[last] - self.process[first]) / (last - first) * 1e6

    def loop_us(self, first: int, last: int) -> float:
        return (self.loop[last] - self.loop[first]) / (last - first) * 1e6


def worker_cost(adapter: Adapter, jobs: int) -> dict[str, float]:
    """The event loop's thread runs the worker and the handlers; the store has threads of its own."""
    marks = Marks({SKIPPED, jobs})
    _drain_marked(_own(adapter), jobs, jobs, marks)
    return {"loop_us_per_job": marks.loop_us(SKIPPED, jobs), "cpu_us_per_job": marks.cpu_us(SKIPPED, jobs)}


def growth(adapter: Adapter, ready: int) -> dict[str, float]:
    """A fifth of `ready` is drained; its first and last slice are compared."""
    jobs = ready // 5
    piece = min(SLICE, jobs // 4)
    marks = Marks({SKIPPED, SKIPPED + piece, jobs - piece, jobs})
    _drain_marked(_own(adapter), ready, jobs, marks)
    return {
        "first_us": marks.cpu_us(SKIPPED, SKIPPED + piece),
        "last_us": marks.cpu_us(jobs - piece, jobs),
        "small_us": _small_us(),
        "longest_gap_ms": marks.longest_gap * 1e3,
    }


def _small_us() -> float:
    """CPU per job with 1 000 ready: a worker's whole run, less that of a run with one job."""
    whole = statistics.median(_run_cpu(SMALL) for _ in range(10))
    start_and_stop = statistics.median(_run_cpu(1) for _ in range(10))
    return (whole - start_and_stop) / (SMALL - 1) * 1e6


def _run_cpu(jobs: int) -> float:
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
        adapter = Sync()
        adapter.open(Path(folder))
        adapter.preload(jobs)
        began = time.process_time()
        adapter.drain(jobs)
        spent = time.process_time() - began
        adapter.close()
        return spent


def _drain_marked(adapter: Sync, ready: int, jobs: int, marks: Marks) -> None:
    adapter.preload(ready)
    adapter.observe = marks
    adapter.drain(jobs)


def blocked_lane(adapter: Adapter, blocked: int, samples: int = 200) -> dict[str, float]:
    """One lane is full to its limit with `blocked` jobs behind; jobs of other lanes come singly."""
    app = _own(adapter).app
    arrived: queue.SimpleQueue[float] = queue.SimpleQueue()
    app.queue("lanes", key_concurrency=1)

    @app.task(name="lane", queue="lanes", key=lambda key, sent: key)  # noqa: ARG005 - called by name
    async def lane(key: str, sent: float) -> None:
        if key == "busy":
            await asyncio.Event().wait()
        arrived.put(time.monotonic() - sent)

    app.enqueue_many_sync(lane.job("busy", 0.0) for _ in range(blocked))
    taken: list[float] = []
    with _own(adapter).serve(lambda _: None, queues={"lanes": 1}, grace=0):
        for number in range(samples):
            time.sleep(0.005)
            lane.enqueue_sync(f"open-{number}", time.monotonic())
            taken.append(arrived.get(timeout=latency.PATIENCE))
    return latency.summary(taken)


def _own(adapter: Adapter) -> Sync:
    if not isinstance(adapter, Sync):
        raise TypeError("this is measured for Tidemill only")
    return adapter
