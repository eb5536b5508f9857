"""What Tidemill sets out to reach, as ratios wherever a ratio is possible.

A target names its own number and, for a ratio, the number it is divided by. Ratios are taken round
by round, so that both numbers come from the same minute of the machine.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal

Rounds = list[dict[str, float]]
Results = dict[str, dict[str, Rounds]]


@dataclass(frozen=True)
class Source:
    measurement: str
    queue: str
    figure: str

    def rounds(self, results: Results) -> list[float]:
        rounds = results.get(self.measurement, {}).get(self.queue, [])
        return [numbers[self.figure] for numbers in rounds if self.figure in numbers]


@dataclass(frozen=True)
class Target:
    what: str
    own: Source
    bound: Literal["at least", "at most"]
    goal: float
    unit: str = "x"
    against: Source | None = None

    def reached(self, results: Results) -> list[float]:
        """One value per round; empty when it was not measured."""
        own = self.own.rounds(results)
        if self.against is None:
            return own
        return [mine / other for mine, other in zip(own, self.against.rounds(results), strict=False) if other]

    def met(self, values: list[float]) -> bool:
        value = statistics.median(values)
        return value >= self.goal if self.bound == "at least" else value <= self.goal


def _speed(measurement: str, queue: str) -> Source:
    return Source(measurement, queue, "jobs_per_second")


TARGETS = (
    Target(
        "enqueue_sync, beside a bare insert",
        _speed("enqueue_lone", "tidemill"),
        "at least",
        0.8,
        against=_speed("enqueue_lone", "bare"),
    ),
    Target(
        "await enqueue, beside a bare insert",
        _speed("enqueue_lone", "tidemill-async"),
        "at least",
        0.45,
        against=_speed("enqueue_lone", "bare"),
    ),
    Target(
        "64 producers, beside durable Huey",
        _speed("enqueue_together", "tidemill-async"),
        "at least",
        4,
        against=_speed("enqueue_together", "huey"),
    ),
    Target(
        "64 producers, beside one durable Huey producer",
        _speed("enqueue_together", "tidemill-async"),
        "at least",
        4,
        against=_speed("enqueue_lone", "huey"),
    ),
    Target(
        "drained by one process, beside durable Huey",
        _speed("drain", "tidemill"),
        "at least",
        5,
        against=_speed("drain", "huey"),
    ),
    Target(
        "worker's own CPU for a job that does nothing",
        Source("worker_cost", "tidemill", "loop_us_per_job"),
        "at most",
        25,
        "µs",
    ),
    Target(
        "enqueue to start, one process, p50",
        Source("latency_in_process", "tidemill", "p50_ms"),
        "at most",
        2,
        "ms",
    ),
    Target(
        "enqueue to start, two processes, p50",
        Source("latency_across_processes", "tidemill", "p50_ms"),
        "at most",
        10,
        "ms",
    ),
    Target("idle worker", Source("idle", "tidemill", "cpu_percent_of_a_core"), "at most", 1, "% of a core"),
    Target(
        "CPU per job: last 10 000 beside first 10 000",
        Source("growth", "tidemill", "last_us"),
        "at most",
        1.5,
        against=Source("growth", "tidemill", "first_us"),
    ),
    Target(
        "CPU per job: last 10 000 beside 1 000 ready",
        Source("growth", "tidemill", "last_us"),
        "at most",
        1.5,
        against=Source("growth", "tidemill", "small_us"),
    ),
    Target(
        "start in an open lane beside a blocked one, p99",
        Source("blocked_lane", "tidemill", "p99_ms"),
        "at most",
        50,
        "ms",
    ),
)
