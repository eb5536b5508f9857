"""Enqueue throughput: accepted jobs per second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from benchmarks.adapters import Adapter
from benchmarks.case import Case
from benchmarks.cpu_time import cpu_seconds

PRODUCERS = 64
WARM_UP = 128


def lone(case: Case) -> dict[str, float]:
    return _for_seconds(case, lambda adapter, jobs: adapter.enqueue_each(jobs))


def together(case: Case) -> dict[str, float]:
    return _for_seconds(case, lambda adapter, jobs: adapter.enqueue_together(jobs, PRODUCERS))


def bulk(case: Case) -> dict[str, float]:
    return _for_seconds(case, lambda adapter, jobs: adapter.enqueue_bulk(jobs), warm=20 * WARM_UP)


def _for_seconds(case: Case, send: Callable[[Adapter, int], None], warm: int = WARM_UP) -> dict[str, float]:
    """Enqueues for about `case.size` seconds: the slowest queue is two hundred times slower than the
    fastest."""
    adapter = case.adapter()
    adapter.open(case.place.url)
    try:
        send(adapter, warm)  # opens connections and files, prepares statements, imports modules
        expected = warm / _seconds(adapter, warm, send)
        jobs = max(PRODUCERS, int(expected * case.size) // PRODUCERS * PRODUCERS)
        before = _cpu(case)
        speed = jobs / _seconds(adapter, jobs, send)
        spent = {name: (seconds - before[name]) / jobs * 1e6 for name, seconds in _cpu(case).items()}
        return {"jobs_per_second": speed, **spent}
    finally:
        adapter.close()


def _cpu(case: Case) -> dict[str, float]:
    """Returns the CPU time of this process, its children and the server. Unlike throughput, it is
    comparable on a busy machine."""
    spent = {"client_us_per_job": cpu_seconds(os.getpid())}
    if case.place.pid is not None:
        spent["server_us_per_job"] = cpu_seconds(case.place.pid)
    return spent


def _seconds(adapter: Adapter, jobs: int, send: Callable[[Adapter, int], None]) -> float:
    began = time.perf_counter()
    send(adapter, jobs)
    return time.perf_counter() - began
