"""The jobs of a forecast: ready and planned jobs of each lane, with their needs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidemill.core.batching import BatchPolicy
from tidemill.core.needs import IMPLIED, Need, Units

MeterUnits = dict["MeterKey", float]
"""The units that one call takes, by meter."""

MeterKey = tuple[str, str | None, str]
"""The key of a meter: pool, key and limit."""

SLOTS_METER: MeterKey = ("", None, "slots of the workers")
QUEUE_METER: MeterKey = ("", None, "jobs of the queue at once")


class CallGroup(msgspec.Struct, frozen=True):
    """A number of calls with the same needs."""

    calls: float
    needs: tuple[Need, ...] = ()


class LaneBacklog(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that start one after the other, like the jobs of a lane.

    - `priority`: the backlog with the smaller number starts first.
    - `weight`: backlogs of the same priority share capacity by their weights.
    - `opens`: the seconds until the first job may start; infinite means never."""

    work: tuple[CallGroup, ...]
    priority: int
    weight: float = 1.0
    queue: str = ""
    opens: float = 0.0


MAX_SAMPLES_PER_LANE = 1000
"""The average need of a lane is taken over this many of its first jobs ..."""
MAX_SAMPLES_IN_ALL = 1000
"""... or over fewer if there are many lanes, so that reading all of them takes no longer."""
MIN_SAMPLES_PER_LANE = 5


def sample_size(lanes: int) -> int:
    """Returns how many jobs of each lane and priority are read to calculate their average needs. `lanes` is
    the number of lanes."""
    return max(MIN_SAMPLES_PER_LANE, min(MAX_SAMPLES_PER_LANE, MAX_SAMPLES_IN_ALL // max(1, lanes)))


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The ready jobs of one lane and one priority.

    - `jobs`: the number of jobs.
    - `needs`: the average needs of one job.
    - `batching`: how these jobs share calls."""

    queue: str
    lane: str
    priority: int
    jobs: int
    needs: tuple[Need, ...]
    batching: BatchPolicy | None = None


class PlannedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are not enqueued yet, all of one lane and one priority. They would be due after `delay`
    seconds, or at the wall time `at`."""

    task: str
    demand: Demand
    delay: float = 0.0
    at: float | None = None


def average_needs(sample: Sequence[tuple[Need, ...]], *, shares_calls: bool = False) -> tuple[Need, ...]:
    """Returns the average needs of a lane's jobs. `sample` has the needs of some of these jobs. Implied
    costs, such as one request, are included unless `shares_calls=True`."""
    implied = {} if shares_calls else IMPLIED
    totals: dict[tuple[str, str | None], Units] = {}
    for needs in sample:
        for need in needs:
            total = totals.setdefault((need.pool, need.key), {})
            for unit, amount in (implied | need.units).items():
                total[unit] = total.get(unit, 0.0) + amount
    return tuple(
        Need(pool, key, {unit: amount / len(sample) for unit, amount in total.items()})
        for (pool, key), total in sorted(totals.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    )
