"""Chains of five jobs, many at once and one alone, and a fan-out with a join."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.adapters import FlowAdapter
from benchmarks.case import Case
from benchmarks.measurements.drain import CpuSinceFirstStart
from benchmarks.measurements.latency import summary
from benchmarks.worker_processes import start_workers

STEPS = 5
WARM_UP = 10
"""Number of chains, and width of the fan-out, for the warm-up."""


def chains(case: Case) -> dict[str, float]:
    """Runs chains that were enqueued before the worker starts; measures from the first start to the last."""
    count = int(case.size)
    adapter = case.flows()
    adapter.open(case.place.url)
    adapter.send_chains(count, STEPS)
    adapter.close()
    with start_workers(case) as crew:
        spent = CpuSinceFirstStart(case, crew)
        crew.until(count * STEPS, spent.look)
        used = spent.since_first()
        return {"chains_per_second": count / crew.tally.span(crew.view)} | {
            name: seconds / (count * STEPS) * 1e6 for name, seconds in used.items()
        }


def lone_chain(case: Case) -> dict[str, float]:
    """Measures one chain on an idle worker, from the call that enqueues it to its result."""

    def measured(adapter: FlowAdapter) -> dict[str, float]:
        for _ in range(WARM_UP):
            _seconds(lambda: adapter.run_chain(STEPS), STEPS)
        return summary([_seconds(lambda: adapter.run_chain(STEPS), STEPS) for _ in range(int(case.size))])

    return _beside_a_worker(case, measured)


def fan_out(case: Case) -> dict[str, float]:
    """Measures a fan-out, from the call that enqueues it to its result."""
    width = int(case.size)

    def measured(adapter: FlowAdapter) -> dict[str, float]:
        _seconds(lambda: adapter.run_fan_out(WARM_UP), WARM_UP)
        seconds = _seconds(lambda: adapter.run_fan_out(width), width)
        return {"seconds": seconds, "jobs_per_second": (width + 2) / seconds}

    return _beside_a_worker(case, measured)


def _beside_a_worker(case: Case, measured: Callable[[FlowAdapter], dict[str, float]]) -> dict[str, float]:
    adapter = case.flows()
    adapter.open(case.place.url)
    try:
        with start_workers(case):
            return measured(adapter)
    finally:
        adapter.close()


def _seconds(run: Callable[[], int], right: int) -> float:
    began = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - began
    if result != right:
        raise RuntimeError(f"the flow ended with {result} instead of {right}")
    return seconds
