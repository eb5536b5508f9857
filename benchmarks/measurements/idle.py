"""The CPU time and the requests of an idle worker and its server."""

from __future__ import annotations

import time

from benchmarks.case import Case
from benchmarks.cpu_time import cpu_seconds
from benchmarks.worker_processes import start_workers

SETTLED = 1.0


def idle(case: Case) -> dict[str, float]:
    adapter = case.adapter()
    adapter.open(case.place.url)
    with start_workers(case) as crew:
        adapter.send_paced([0.0])
        adapter.close()
        crew.until(1)
        time.sleep(SETTLED)  # after the start of the worker, and after the work that follows a job
        pids = crew.pids if case.place.pid is None else [*crew.pids, case.place.pid]
        asked, cpu, began = case.place.asked(), cpu_seconds(*crew.pids), time.perf_counter()
        whole = cpu_seconds(*pids)
        time.sleep(case.size)
        seconds = time.perf_counter() - began
        figures = {"cpu_percent_of_a_core": (cpu_seconds(*crew.pids) - cpu) / seconds * 100}
        if case.place.pid is not None:
            figures["with_server_percent"] = (cpu_seconds(*pids) - whole) / seconds * 100
            figures |= {
                f"{name}_per_second": max(0, number - asked[name] - _looks(case)[name]) / seconds
                for name, number in case.place.asked().items()
            }
        return figures


def _looks(case: Case) -> dict[str, int]:
    """Returns the requests that reading the counters itself causes."""
    before = case.place.asked()
    return {name: number - before[name] for name, number in case.place.asked().items()}
