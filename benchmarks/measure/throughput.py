"""Jobs per second, in and out."""

from __future__ import annotations

import time

from benchmarks.adapters import Adapter

PRODUCERS = 64


def enqueue_lone(adapter: Adapter, jobs: int) -> dict[str, float]:
    adapter.enqueue_each(min(100, jobs))  # warm: files, statements, imports
    began = time.perf_counter()
    adapter.enqueue_each(jobs)
    return {"jobs_per_second": jobs / (time.perf_counter() - began)}


def enqueue_together(adapter: Adapter, jobs: int) -> dict[str, float]:
    adapter.enqueue_together(PRODUCERS, PRODUCERS)
    jobs -= jobs % PRODUCERS
    began = time.perf_counter()
    adapter.enqueue_together(jobs, PRODUCERS)
    return {"jobs_per_second": jobs / (time.perf_counter() - began)}


def drain(adapter: Adapter, jobs: int) -> dict[str, float]:
    """CPU is the whole process's: every thread, the store's included."""
    adapter.preload(jobs)
    cpu, began = time.process_time(), time.perf_counter()
    adapter.drain(jobs)
    seconds = time.perf_counter() - began
    return {"jobs_per_second": jobs / seconds, "cpu_us_per_job": (time.process_time() - cpu) / jobs * 1e6}
