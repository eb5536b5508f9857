"""Ready jobs as lines of calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from tidemill.core.batching import Batching
from tidemill.core.demand import Demand
from tidemill.core.forecast.known import Known
from tidemill.core.forecast.lines import Line, Work
from tidemill.core.needs import Need
from tidemill.core.units import IMPLIED, Units
from tidemill.inspect.situation import Situation

Knows = Callable[[tuple[str, str | None]], Known | None]


def work_of(jobs: float, needs: tuple[Need, ...], batching: Batching | None, knows: Knows) -> Work:
    """So many jobs of those needs, as calls: a shared one takes as many as its rule and its pools let it."""
    if batching is None:
        return Work(jobs, needs)
    together = _together(jobs, needs, batching, knows)
    calls = max(1.0, math.ceil(jobs / together))
    return Work(calls, _call(needs, batching, jobs / calls))


def lines_of(situation: Situation, demand: Iterable[Demand], knows: Knows) -> list[Line]:
    """Lanes of a queue that need the same pools and are as urgent go as one line, in which each has its
    turn: thousands of keys are a few lines."""
    alike: dict[tuple[str, int, tuple[tuple[str, str | None], ...], bool], list[Demand]] = {}
    for each in demand:
        places = tuple((need.pool, need.key) for need in each.needs)
        alike.setdefault((each.queue, each.priority, places, each.batching is None), []).append(each)
    return [
        Line(
            work=(_joined([work_of(each.jobs, each.needs, each.batching, knows) for each in lanes]),),
            priority=priority,
            weight=situation.weight(queue) * len(lanes),
            queue=queue,
            opens=situation.opens(queue),
        )
        for (queue, priority, _, _), lanes in alike.items()
    ]


def _joined(works: Sequence[Work]) -> Work:
    """All of it, with needs on average."""
    calls = sum(work.calls for work in works)
    if len(works) == 1:
        return works[0]
    return Work(
        calls,
        tuple(
            Need(need.pool, need.key, _mean([(work.calls, work.needs[at].units) for work in works]))
            for at, need in enumerate(works[0].needs)
        ),
    )


def _mean(weighted: Sequence[tuple[float, Units]]) -> Units:
    total: Units = {}
    for calls, units in weighted:
        for unit, amount in (IMPLIED | units).items():
            total[unit] = total.get(unit, 0.0) + calls * amount
    calls = sum(calls for calls, _ in weighted)
    return {unit: amount / calls for unit, amount in total.items()}


def _together(jobs: float, needs: tuple[Need, ...], batching: Batching, knows: Knows) -> float:
    """How many jobs a call takes when there are enough."""
    most = min(float(batching.max_items), jobs)
    for need in needs:
        for unit, amount in need.units.items():
            if amount > 0 and unit in batching.max_units:
                most = min(most, math.floor(batching.max_units[unit] / amount + 1e-9))
        known = knows((need.pool, need.key))
        for limit in () if known is None else known.settings.limits:
            added = need.units.get(limit.unit, 0.0)
            if known is not None and added > 0:
                call = batching.call.get(need.pool, {}).get(limit.unit, 0.0)
                most = min(most, math.floor((known.settings.most(limit) - call) / added + 1e-9))
    return max(1.0, most)


def _call(needs: tuple[Need, ...], batching: Batching, together: float) -> tuple[Need, ...]:
    made = []
    for need in needs:
        units = dict(batching.call.get(need.pool, {}))
        for unit, amount in need.units.items():
            units[unit] = units.get(unit, 0.0) + together * amount
        made.append(Need(need.pool, need.key, units))
    return tuple(made)
