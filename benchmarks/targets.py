"""The performance targets of Tidemill, as ratios where possible.

A target names its number and, for a ratio, the number to divide by. Ratios are computed per round, so
that both numbers come from the same minute of the machine."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal

from benchmarks.plan import POSTGRES_PEERS, REDIS_PEERS, REDIS_PYTHON

Rounds = list[dict[str, float]]
Results = dict[str, dict[str, Rounds]]
"""Results of one store by measurement and queue; a failed round has no figures."""


@dataclass(frozen=True)
class TargetSource:
    """The figure of one queue; of several queues, the highest in each round."""

    measurement: str
    queues: tuple[str, ...]
    figure: str

    def rounds(self, results: Results) -> dict[int, float]:
        """Returns the figure by the number of the round. Skips rounds in which a queue failed: it could be
        the highest."""
        each = [self._of(queue, results) for queue in self.queues]
        in_turn = enumerate(zip(*(rounds for rounds in each if set(rounds) - {None}), strict=False))
        return {number: max(values) for number, values in in_turn if None not in values}

    def _of(self, queue: str, results: Results) -> list[float | None]:
        return [figures.get(self.figure) for figures in results.get(self.measurement, {}).get(queue, [])]


@dataclass(frozen=True)
class Target:
    what: str
    own: TargetSource
    bound: Literal["at least", "at most"]
    goal: float
    unit: str = "x"
    against: TargetSource | None = None

    def reached(self, results: Results) -> list[float]:
        """Returns one value per round; empty if it was not measured."""
        own = self.own.rounds(results)
        if self.against is None:
            return list(own.values())
        others = self.against.rounds(results)
        return [mine / others[number] for number, mine in own.items() if others.get(number)]

    def met(self, values: list[float]) -> bool:
        value = statistics.median(values)
        return value >= self.goal if self.bound == "at least" else value <= self.goal


SPEED = "jobs_per_second"


def _faster(what: str, own: tuple[str, str], goal: float, *others: str, than: str = "") -> Target:
    """At least `goal` times the jobs per second of the fastest of `others`, in the same measurement or in
    `than`."""
    measurement, queue = own
    against = TargetSource(than or measurement, others, SPEED)
    return Target(what, TargetSource(measurement, (queue,), SPEED), "at least", goal, against=against)


def _below(what: str, goal: float, unit: str, of: tuple[str, str, str]) -> Target:
    measurement, queue, figure = of
    return Target(what, TargetSource(measurement, (queue,), figure), "at most", goal, unit)


def _grows(what: str, goal: float, measurement: str, than: tuple[str, str] | None = None) -> Target:
    first = TargetSource(*_where(than or (measurement, "first_us")))
    return Target(what, TargetSource(measurement, ("tidemill",), "last_us"), "at most", goal, against=first)


def _where(of: tuple[str, str]) -> tuple[str, tuple[str, ...], str]:
    measurement, figure = of
    return measurement, ("tidemill",), figure


OWN, AWAITED = "tidemill", "tidemill-async"

SCHEDULES = (
    _below(
        "10 000 schedules due at one instant, the last job", 1_000, "ms", ("schedules_at_once", OWN, "max_ms")
    ),
    _below(
        "10 000 schedules due in a minute, the latest job", 1_000, "ms", ("schedules_spread", OWN, "max_ms")
    ),
)

REDIS = (
    _faster("drained by one process, beside BullMQ on Node", ("drain", OWN), 1.5, "bullmq-node"),
    _faster("the same, aimed at", ("drain", OWN), 2.5, "bullmq-node"),
    _faster("drained by one process, beside the fastest in Python", ("drain", OWN), 5, *REDIS_PYTHON),
    _faster("drained by two processes, beside the fastest of all", ("drain_two", OWN), 2, *REDIS_PEERS),
    _faster("await enqueue, beside a bare awaited round trip", ("enqueue_lone", AWAITED), 0.7, "bare-async"),
    _faster("enqueue_sync, beside a bare blocking round trip", ("enqueue_lone", OWN), 0.7, "bare"),
    _faster("64 producers, beside one", ("enqueue_together", AWAITED), 4, AWAITED, than="enqueue_lone"),
    _faster("bulk, beside BullMQ on Node", ("enqueue_bulk", AWAITED), 3, "bullmq-node"),
    _below("enqueue to start at 100 a second, p50", 0.8, "ms", ("latency", AWAITED, "p50_ms")),
    _below("enqueue to start at 100 a second, p99", 2, "ms", ("latency", AWAITED, "p99_ms")),
    _below("a ready job with 208 bytes of arguments", 560, "bytes", ("footprint", AWAITED, "bytes_per_job")),
    _below("idle worker asks", 2, "times a second", ("idle", OWN, "asked_per_second")),
    _below("idle worker", 0.5, "% of a core", ("idle", OWN, "cpu_percent_of_a_core")),
    _grows("CPU per job, server included: last 10 000 beside first", 1.5, "growth"),
    *SCHEDULES,
)

POSTGRES = (
    _faster("drained at 10 000 ready, beside PgQueuer", ("drain", OWN), 2, "pgqueuer"),
    _faster("drained at 100 000 ready, beside PgQueuer", ("drain_100k", OWN), 3, "pgqueuer"),
    _faster("drained by two processes, beside the fastest", ("drain_two", OWN), 2, *POSTGRES_PEERS),
    _faster("await enqueue, beside PgQueuer", ("enqueue_lone", AWAITED), 1, "pgqueuer"),
    _faster("bulk, beside PgQueuer", ("enqueue_bulk", AWAITED), 1, "pgqueuer"),
    _below("enqueue to start at 100 a second, p50", 3, "ms", ("latency", AWAITED, "p50_ms")),
    _grows("CPU per job, server included: last 10 000 beside first", 1.5, "growth"),
    _grows("the same under an open snapshot", 3, "growth_under_snapshot"),
    *SCHEDULES,
)

SQLITE = (
    _faster("enqueue_sync, beside a bare insert", ("enqueue_lone", OWN), 0.8, "bare"),
    _faster("await enqueue, beside a bare insert", ("enqueue_lone", AWAITED), 0.45, "bare"),
    _faster("64 producers, beside durable Huey", ("enqueue_together", AWAITED), 4, "huey"),
    _faster(
        "64 producers, beside one durable Huey producer",
        ("enqueue_together", AWAITED),
        4,
        "huey",
        than="enqueue_lone",
    ),
    _faster("drained by one process, beside durable Huey", ("drain", OWN), 5, "huey"),
    _below("worker's own CPU for a job that does nothing", 25, "µs", ("worker_cost", OWN, "loop_us_per_job")),
    _below("enqueue to start, one process, p50", 2, "ms", ("latency_in_process", OWN, "p50_ms")),
    _below("enqueue to start, two processes, p50", 10, "ms", ("latency", OWN, "p50_ms")),
    _below("idle worker", 1, "% of a core", ("idle", OWN, "cpu_percent_of_a_core")),
    _grows("CPU per job: last 10 000 beside first", 1.5, "growth"),
    _grows("CPU per job: last 10 000 beside 1 000 ready", 1.5, "growth", than=("small", "small_us")),
    _below("start in an open lane beside a blocked one, p99", 50, "ms", ("blocked_lane", OWN, "p99_ms")),
    *SCHEDULES,
)

TARGETS = {"redis": REDIS, "postgres": POSTGRES, "sqlite": SQLITE}
