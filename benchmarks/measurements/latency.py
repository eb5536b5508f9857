"""Start latency: from the call that enqueues a job to the first line of its handler.

The worker is idle most of the time, and waits for jobs by its library's mechanism."""

from __future__ import annotations

import random
import statistics
import threading
from collections.abc import Iterable

from benchmarks.case import Case
from benchmarks.start_log import StartLog
from benchmarks.worker_processes import WorkerGroup, start_workers

WARM_UP = 20
RATE = 100.0


def at_a_hundred_a_second(case: Case) -> dict[str, float]:
    """One process sends jobs and another runs them; the sender does not wait for the previous job."""
    gaps = [_around(1 / RATE) for _ in range(int(case.size))]
    adapter = case.adapter()
    adapter.open(case.place.url)
    try:
        with start_workers(case, room=len(gaps) + WARM_UP) as crew:
            adapter.send_paced([0.01] * WARM_UP)
            crew.until(WARM_UP)
            adapter.send_paced(gaps)
            crew.until(WARM_UP + len(gaps))
            return summary(_late(crew)[WARM_UP:])
    finally:
        adapter.close()


def _late(crew: WorkerGroup) -> list[float]:
    return list(crew.tally.lateness(crew.view))


def in_process(case: Case) -> dict[str, float]:
    """One process sends and runs jobs, like a program with an embedded worker."""
    adapter = case.adapter()
    adapter.open(case.place.url)
    gaps = [_around(0.055) for _ in range(int(case.size) + WARM_UP)]
    tally = StartLog(case.folder / "tally", rows=1, room=len(gaps))
    view = tally.create()
    threading.Thread(target=adapter.work, args=(tally.row(0),), daemon=True).start()
    crew = WorkerGroup(tally, view, [])
    adapter.send_paced(gaps)
    crew.until(len(gaps))
    return summary(_late(crew)[WARM_UP:])


def summary(seconds: Iterable[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {
        "p50_ms": statistics.median(ordered) * 1e3,
        "p99_ms": ordered[round(last * 0.99)] * 1e3,
        "max_ms": ordered[-1] * 1e3,
    }


def _around(seconds: float) -> float:
    """Returns a random gap around `seconds`, so that no poll interval synchronises with it."""
    return random.uniform(0.5, 1.5) * seconds
