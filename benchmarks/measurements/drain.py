"""Drains no-op jobs, enqueued before the workers start; measures from the first start to the last."""

from __future__ import annotations

import time

from benchmarks.case import Case
from benchmarks.cpu_time import cpu_seconds
from benchmarks.worker_processes import WorkerGroup, start_workers


def one_process(case: Case) -> dict[str, float]:
    return _drained(case, workers=1)


def two_processes(case: Case) -> dict[str, float]:
    return _drained(case, workers=2)


def _drained(case: Case, *, workers: int) -> dict[str, float]:
    jobs = int(case.size)
    preload(case, jobs)
    with start_workers(case, workers=workers) as crew:
        spent = CpuSinceFirstStart(case, crew)
        crew.until(jobs, spent.look)
        used = spent.since_first()
        return {"jobs_per_second": (jobs - 1) / crew.tally.span(crew.view)} | {
            name: seconds / jobs * 1e6 for name, seconds in used.items()
        }


def preload(case: Case, jobs: int) -> None:
    adapter = case.adapter()
    adapter.open(case.place.url)
    adapter.preload(jobs)
    adapter.close()


class CpuSinceFirstStart:
    """CPU time of the workers and of the server since the first job started."""

    def __init__(self, case: Case, crew: WorkerGroup) -> None:
        self._server, self._crew = case.place.pid, crew
        self._first: dict[str, float] | None = None

    def look(self, started: int) -> None:
        if started and self._first is None:
            self._first = self.now()

    def now(self) -> dict[str, float]:
        seconds = {"worker_us_per_job": cpu_seconds(*self._crew.pids)}
        if self._server is not None:
            seconds["server_us_per_job"] = cpu_seconds(self._server)
        return seconds

    def since_first(self) -> dict[str, float]:
        first = self._first or {}
        return {name: value - first.get(name, value) for name, value in self.now().items()}


class CpuAtStarts:
    """CPU time of workers and server at given numbers of started jobs, and the longest gap between two
    starts."""

    def __init__(self, case: Case, crew: WorkerGroup, at: list[int]) -> None:
        self._server, self._crew = case.place.pid, crew
        self._left = sorted(at)
        self.seen: dict[int, tuple[int, float]] = {}
        self._last, self._moved = 0, time.monotonic()
        self.longest_gap = 0.0

    def look(self, started: int) -> None:
        while self._left and started >= self._left[0]:
            pids = [*self._crew.pids, *([self._server] if self._server is not None else [])]
            self.seen[self._left.pop(0)] = (started, cpu_seconds(*pids))
        if started != self._last:
            now = time.monotonic()
            if self._last:
                self.longest_gap = max(self.longest_gap, now - self._moved)
            self._last, self._moved = started, now

    def us_between(self, first: int, last: int) -> float:
        (jobs, cpu), (jobs_later, cpu_later) = self.seen[first], self.seen[last]
        return (cpu_later - cpu) / (jobs_later - jobs) * 1e6
