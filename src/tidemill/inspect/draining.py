"""When what waits now will be done, by queue and by pool."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from tidemill.contract.store import Store
from tidemill.core.demand import Demand
from tidemill.core.forecast.answer import ends
from tidemill.core.forecast.lines import Line
from tidemill.core.forecast.meeting import PLACE, Asked
from tidemill.core.states import State
from tidemill.inspect.backlog import Knows, lines_of
from tidemill.inspect.situation import Situation, mean_time

LOOKED_BACK = 600.0
"""Jobs that need no pool go on as fast as jobs of their queue ended in so many seconds."""


class Forecast(msgspec.Struct, frozen=True):
    """`jobs` are ready; the last of them is done at the wall time `done_at`, None for never as things are."""

    jobs: int
    done_at: float | None


class Drains(msgspec.Struct, frozen=True):
    """Only those that have ready jobs, and of which it can be said."""

    queues: Mapping[str, Forecast]
    pools: Mapping[PLACE, Forecast]


async def drains(store: Store, situation: Situation) -> Drains:
    knows, takes = situation.known(), await _takes(store, situation)
    lines = lines_of(situation, situation.demand, knows)
    crew = situation.crew([info.name for info in situation.queues])
    asked = Asked(lines=lines, know=knows, crew=crew, takes=takes or 0.0)
    last = {
        id(line): found[-1] + (takes or 0.0)
        for line, found in zip(lines, ends(asked), strict=True)
        if takes is not None or not _needs_time(line, knows)
    }
    pools = _by_pool(situation, [(line, last.get(id(line))) for line in lines])
    queues = await _by_queue(store, situation, [(line, last.get(id(line))) for line in lines])
    return Drains(queues, pools)


Ended = Iterable[tuple[Line, float | None]]
"""Lines with the seconds until they are done, None when nobody can say."""


def _by_pool(situation: Situation, ended: Ended) -> dict[PLACE, Forecast]:
    """A keyed pool without a key stands for all its keys."""
    jobs: dict[PLACE, int] = {}
    for each in situation.demand:
        for place in _places(each):
            jobs[place] = jobs.get(place, 0) + each.jobs
    seconds: dict[PLACE, float | None] = {}
    for line, end in ended:
        for need in line.work[0].needs:
            for place in {(need.pool, need.key), (need.pool, None)}:
                seconds[place] = _later(seconds.get(place, 0.0), end)
    return {
        place: Forecast(jobs[place], _at(situation, end)) for place, end in seconds.items() if end is not None
    }


async def _by_queue(store: Store, situation: Situation, ended: Ended) -> dict[str, Forecast]:
    pooled: dict[str, int] = {}
    for each in situation.demand:
        pooled[each.queue] = pooled.get(each.queue, 0) + each.jobs
    seconds: dict[str, float | None] = {}
    for line, end in ended:
        seconds[line.queue] = _later(seconds.get(line.queue, 0.0), end)
    found = {}
    for queue, states in (await store.counts()).items():
        ready = states.get(State.READY, 0)
        end = seconds.get(queue, 0.0)
        if plain := ready - pooled.get(queue, 0):
            end = _later(end, await _at_its_rate(store, situation, queue, plain))
        if ready and end is not None:
            found[queue] = Forecast(ready, _at(situation, end))
    return found


async def _at_its_rate(store: Store, situation: Situation, queue: str, jobs: int) -> float | None:
    if opens := situation.opens(queue):
        return math.inf if math.isinf(opens) else None
    minutes = await store.history(queue, situation.now.wall - LOOKED_BACK)
    ended = sum(minute.done + minute.failed for minute in minutes)
    return jobs * LOOKED_BACK / ended if ended else None


async def _takes(store: Store, situation: Situation) -> float | None:
    """Of all queues that have jobs for pools, by how many they have."""
    jobs: dict[str, int] = {}
    for each in situation.demand:
        jobs[each.queue] = jobs.get(each.queue, 0) + each.jobs
    took = [(await mean_time(store, queue), count) for queue, count in jobs.items()]
    known = [(seconds, count) for seconds, count in took if seconds is not None]
    total = sum(count for _, count in known)
    return sum(seconds * count for seconds, count in known) / total if total else None


def _needs_time(line: Line, knows: Knows) -> bool:
    """Whether only how long a call takes says how fast it goes."""
    found = [knows((need.pool, need.key)) for need in line.work[0].needs]
    return any(limit.per is None for known in found if known is not None for limit in known.settings.limits)


def _places(each: Demand) -> set[PLACE]:
    return {place for need in each.needs for place in ((need.pool, need.key), (need.pool, None))}


def _later(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


def _at(situation: Situation, seconds: float) -> float | None:
    return None if math.isinf(seconds) else situation.now.wall + seconds
