"""Jobs accepted per second."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.adapters import Adapter
from benchmarks.case import Case

PRODUCERS = 64
WARM_UP = 128


def lone(case: Case) -> dict[str, float]:
    return _for_seconds(case, lambda adapter, jobs: adapter.enqueue_each(jobs))


def together(case: Case) -> dict[str, float]:
    return _for_seconds(case, lambda adapter, jobs: adapter.enqueue_together(jobs, PRODUCERS))


def bulk(case: Case) -> dict[str, float]:
    return _for_seconds(case, lambda adapter, jobs: adapter.enqueue_bulk(jobs), warm=20 * WARM_UP)


def _for_seconds(case: Case, send: Callable[[Adapter, int], None], warm: int = WARM_UP) -> dict[str, float]:
    """About `case.size` seconds: the slowest queue is two hundred times slower than the fastest."""
    adapter = case.adapter()
    adapter.open(case.place.url)
    try:
        send(adapter, warm)  # connections, files, statements, imports
        expected = warm / _seconds(adapter, warm, send)
        jobs = max(PRODUCERS, int(expected * case.size) // PRODUCERS * PRODUCERS)
        return {"jobs_per_second": jobs / _seconds(adapter, jobs, send)}
    finally:
        adapter.close()


def _seconds(adapter: Adapter, jobs: int, send: Callable[[Adapter, int], None]) -> float:
    began = time.perf_counter()
    send(adapter, jobs)
    return time.perf_counter() - began
