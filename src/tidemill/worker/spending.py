"""What one attempt took of its pools and what became of it, until its settlement says so."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidemill.contract.store import Store
from tidemill.core.claims import Claimed
from tidemill.core.departures import Departure
from tidemill.core.needs import Need
from tidemill.core.outcomes import Done, Outcome
from tidemill.core.pools import PoolSettings
from tidemill.core.refusals import Refusal
from tidemill.core.spending import Observation, Spent, Usage
from tidemill.core.units import IMPLIED, Units
from tidemill.core.windows import LEAVE_SHARE, Guards
from tidemill.hooks.calls import BEGIN_CALL
from tidemill.tasks.classifiers import Classifiers
from tidemill.tasks.metering import Meter
from tidemill.worker.call_reports import Reports

Whose = tuple[str, str | None]
"""A pool, and the key of a keyed one."""
MOST_PROBLEMS = 10
"""Of one attempt: one that reads a thousand responses with a broken classifier has told enough."""


def _tell_nobody(*_: Any, **__: Any) -> None:
    pass


class Metering(msgspec.Struct, frozen=True):
    """What all attempts of a worker share. `wall` is the store's wall time as it was last read. `tell` makes
    events of a job, `tell_pools` events of what happened to pools. `thread` is that of the loop. `extra_told`
    are the pools whose `UnreservedCall` was told already."""

    pools: Mapping[str, PoolSettings]
    store: Store
    wall: Callable[[], float]
    loop: asyncio.AbstractEventLoop
    tell: Callable[..., None] = _tell_nobody
    thread: int = msgspec.field(default_factory=threading.get_ident)
    tell_pools: Callable[..., None] = _tell_nobody
    extra_told: set[str] = msgspec.field(default_factory=set)

    def start_by(self, job: Claimed, sent: float) -> float:
        """When the handler must have begun: the store took its units at `sent` or later, and counts with
        their call for no longer than the jitter."""
        settings = [self.pools.get(need.pool) for need in job.needs]
        return sent + LEAVE_SHARE * min(_guards(one).jitter for one in settings)


class Spending:
    """A `Tally` of one attempt. `made` says that its handler has begun: from then on a call may have been
    made; `answered` that it returned, whatever became of its job. `late` is how many seconds after the last
    allowed start it came; 0 if in time. `needs` are what was taken with its claim, when that is more than its
    job's. Handlers tell from any thread, so telling only appends."""

    def __init__(
        self,
        metering: Metering,
        job: Claimed,
        deadline: Callable[[], float],
        *,
        needs: tuple[Need, ...] | None = None,
        start_by: float = math.inf,
        made: bool = False,
        classifiers: Classifiers | None = None,
    ) -> None:
        self._metering, self._job, self._deadline = metering, job, deadline
        self._start_by, self.made = start_by, made
        self.late, self.answered = 0.0, False
        needs = job.needs if needs is None else needs
        self.meter = Meter(needs, metering.pools, self, classifiers)
        self.problems: list[str] = []
        self._reserved = list(needs)
        self._usages: list[Usage] = []
        self._numbered: dict[int, Usage] = {}
        self._reports = Reports(metering, job)
        self._observations: dict[tuple[Whose, bool], Observation] = {}
        self._refused_by_hooks: set[Whose] = set()

    def begin(self) -> bool:
        """The handler is about to run. False when its units are too old for that."""
        self.late = max(0.0, self._metering.loop.time() - self._start_by)
        self.made = self.made or not self.late
        BEGIN_CALL.set(self.meter.begin_call)
        return not self.late

    def missed_start(self, late: float) -> None:
        """A child process did not call the handler: there the units were too old by `late` seconds."""
        self.late, self.made = late, False

    def used(self, usage: Usage, number: int | None = None) -> None:
        if number is None:
            self._usages.append(usage)
        else:
            self._numbered[number] = usage

    def heard(self, seen: Observation, *, watched: bool = False) -> None:
        """The last state and the last refusal of each pool: who reads a thousand responses sends two. A
        watched client may try again by itself for minutes: the pool hears of its refusal before the
        settlement. After a good answer that follows, the refusal no longer decides the attempt."""
        place = (seen.pool, seen.key)
        if seen.remaining or seen.amounts or seen.refusal is not None:
            self._observations[place, seen.refusal is not None] = seen
        if not watched:
            return
        if seen.refusal is not None:
            self._refused_by_hooks.add(place)
            self._reports.refused(seen)
        else:
            self.answered = True
            refused = self._observations.get((place, True))
            if refused is not None and self._reports.knows(refused):
                self._observations.pop((place, True), None)

    def warned(self, problem: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    def wall(self) -> float:
        return self._metering.wall()

    def left(self) -> float:
        return self._deadline() - self._metering.loop.time()

    async def reserve(self, need: Need) -> float | None:
        loop = self._metering.loop
        if asyncio.get_running_loop() is loop:
            return await self._reserve(need)
        elsewhere = asyncio.run_coroutine_threadsafe(self._reserve(need), loop)
        return await asyncio.wrap_future(elsewhere)

    async def _reserve(self, need: Need) -> float | None:
        job = self._job
        wait = await self._metering.store.reserve(job.id, job.fence, job.claim, need)
        if wait is None:
            self._reserved.append(need)
        return wait

    def now(self) -> float:
        return self._metering.loop.time()

    def late_at(self) -> float:
        return self._start_by

    async def depart(self, need: Need, departure: Departure) -> None:
        self._leaves(need, departure)
        await self._reports.depart(need, departure)

    def depart_sync(self, need: Need, departure: Departure) -> None:
        self._leaves(need, departure)
        self._reports.depart_sync(need, departure)

    def departed(self, need: Need, departure: Departure) -> None:
        self._leaves(need, departure)
        self._reports.departed(need, departure)

    def _leaves(self, need: Need, departure: Departure) -> None:
        if departure is Departure.EXTRA:
            self._reserved.append(need)

    @property
    def refusals(self) -> list[tuple[Observation, Refusal]]:
        known = list(self._observations.values())  # other threads add to it
        return [(seen, seen.refusal) for seen in known if seen.refusal is not None]

    def spent(self, outcome: Outcome | None) -> Spent:
        """Usages and observations for a settlement. A transaction sends one too, and its handler goes on."""
        untold = self._reports.take_over()
        if not self.made:
            return Spent(made=False)
        finished = self.answered or isinstance(outcome, Done)
        seen = {**untold, **self._observations}
        observations = [one for one in seen.values() if not self._reports.was_told(one)]
        refused = bool(self.refusals) or any(one.refusal is not None for one in observations)
        return Spent(
            well=(finished or bool(self._usages)) and not refused,
            usages=tuple(self._summed({} if finished else self._rejected())),
            observations=tuple(observations),
        )

    def end(self) -> None:
        """The attempt is concluded: what its code still does is no longer reported."""
        self._reports.end()

    def _rejected(self) -> dict[Whose, list[Units]]:
        """The usage of refused calls: a request, and no other unit. Calls that share a reservation are left
        out, and answers that broke off: the provider may have counted their tokens. So are calls that a hook
        saw: it has told their usage, and a second entry would stand for another call."""
        found: dict[Whose, list[Units]] = {}
        for seen, refusal in self.refusals:
            needs = [need for need in self._reserved if (need.pool, need.key) == (seen.pool, seen.key)]
            single = all(need.units.get("requests", 1.0) <= 1.0 for need in needs)
            if single and not refusal.broke_off and (seen.pool, seen.key) not in self._refused_by_hooks:
                units = {unit: 0.0 for need in needs for unit in need.units if unit not in IMPLIED}
                found[seen.pool, seen.key] = [units]
        return found

    def _summed(self, told: dict[Whose, list[Units]]) -> list[Usage]:
        """Per pool, beside what is `told` already. Of a pool that was reserved more often than was told of,
        the largest reservations count whole: a call nobody spoke of was made all the same."""
        for usage in (*self._usages, *self._numbered.values()):
            told.setdefault((usage.pool, usage.key), []).append(usage.units)
        reserved: dict[Whose, list[Units]] = {}
        for need in self._reserved:
            reserved.setdefault((need.pool, need.key), []).append(need.units)
        return [
            Usage(pool=pool, key=key, units=_total(told[pool, key], kept))
            for (pool, key), kept in reserved.items()
            if (pool, key) in told
        ]


def _total(told: list[Units], reserved: list[Units]) -> Units:
    total: Units = {}
    for unit in {unit: None for units in told for unit in units}:
        amounts = [units[unit] for units in told if unit in units]
        kept = sorted((units.get(unit, IMPLIED.get(unit, 0.0)) for units in reserved), reverse=True)
        total[unit] = sum(amounts) + sum(kept[: max(0, len(kept) - len(amounts))])
    return total


def _guards(settings: PoolSettings | None) -> Guards:
    """A pool this application does not know is another's: what holds for one that says nothing."""
    return Guards() if settings is None else settings.guards
