"""What ready jobs ask of pools, lane by lane."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidemill.core.batching import Batching
from tidemill.core.needs import Need
from tidemill.core.units import IMPLIED, Units

SAMPLED = 1000
"""What a job of a lane needs is averaged over so many, those that start first ..."""
SAMPLED_OF_ALL = 1000
"""... or fewer where there are many lanes: reading all of them takes no longer than reading so many."""
SAMPLED_AT_LEAST = 5


def sampled(lanes: int) -> int:
    """How many jobs of each lane and priority are looked at."""
    return max(SAMPLED_AT_LEAST, min(SAMPLED, SAMPLED_OF_ALL // max(1, lanes)))


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The ready jobs of a lane with one priority. `needs` are those of one of them, on average over the
    first of them (`sampled`); `batching` is how they share calls."""

    queue: str
    lane: str
    priority: int
    jobs: int
    needs: tuple[Need, ...]
    batching: Batching | None = None


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that would be sent, all of one lane and priority; `delay` in seconds or `at` as they would ask."""

    task: str
    demand: Demand
    delay: float = 0.0
    at: float | None = None


def averaged(sample: Sequence[tuple[Need, ...]], *, shares_calls: bool = False) -> tuple[Need, ...]:
    """The needs of one of several jobs of a lane, which all need the same pools with the same keys. What
    every call costs unasked is said, since some may have asked for more; to a call that is shared a job
    adds only what it asked for."""
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
