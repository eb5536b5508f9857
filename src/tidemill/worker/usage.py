"""The units that one attempt reserved and used. They are collected for the attempt's settlement."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob
from tidemill.core.feedback import Observation, PoolUsage, Refusal, UsageReport
from tidemill.core.late_calls import Departure
from tidemill.core.needs import IMPLIED, Need, Units
from tidemill.core.outcomes import Outcome, Snooze, Success
from tidemill.core.pools import PoolSettings
from tidemill.core.windows import SEND_SHARE, Guards
from tidemill.hooks.watched_call import BEGIN_CALL
from tidemill.tasks.pools import Classifiers
from tidemill.tasks.usage import UsageMeter
from tidemill.worker.usage_reports import UsageReports

PoolKey = tuple[str, str | None]
"""A pool, and the key of a keyed pool."""
MAX_PROBLEMS = 10
"""Limit per attempt: a broken classifier that reads a thousand responses would repeat itself."""


def _emit_nothing(*_: Any, **__: Any) -> None:
    pass


class AttemptEnvironment(msgspec.Struct, frozen=True):
    """The objects that all attempts of a worker share.

    - `pools`: the declared pools, by name.
    - `wall`: returns the store's wall time, as last read.
    - `loop`, `thread`: the worker's event loop, and the id of its thread.
    - `emit`: emits an event about a job.
    - `emit_pool_changes`: emits events about pools.
    - `warned_pools`: the pools for which an `UnreservedCall` event was emitted."""

    pools: Mapping[str, PoolSettings]
    store: Store
    wall: Callable[[], float]
    loop: asyncio.AbstractEventLoop
    emit: Callable[..., None] = _emit_nothing
    thread: int = msgspec.field(default_factory=threading.get_ident)
    emit_pool_changes: Callable[..., None] = _emit_nothing
    warned_pools: set[str] = msgspec.field(default_factory=set)

    def start_by(self, job: ClaimedJob, sent: float) -> float:
        """Returns the event-loop time by which the handler must start. This is half of the smallest jitter of
        the job's pools after `sent`.

        `sent`: the earliest event-loop time at which the store may have reserved the units."""
        settings = [self.pools.get(need.pool) for need in job.needs]
        return sent + SEND_SHARE * min(_guards_of(pool).jitter for pool in settings)


class AttemptUsage:
    """The usage record of one attempt: the units that it reserved and used, and the provider's answers. Any
    thread may report usage.

    - `call_made`: True once the handler has begun, because it may have made a call. `made=True` sets it from
      the beginning.
    - `has_answer`: True once a successful answer was seen, or a batch handler has returned.
    - `needs`: the reserved units, if they differ from `job.needs`.
    - `start_by`: the event-loop time by which the handler must start.
    - `late`: how many seconds after `start_by` the handler was about to start; 0 if it was in time.
    - `deadline`: returns the event-loop time of the attempt's timeout."""

    def __init__(
        self,
        environment: AttemptEnvironment,
        job: ClaimedJob,
        deadline: Callable[[], float],
        *,
        needs: tuple[Need, ...] | None = None,
        start_by: float = math.inf,
        made: bool = False,
        classifiers: Classifiers | None = None,
    ) -> None:
        self._environment, self._job, self._deadline = environment, job, deadline
        self._start_by, self.call_made = start_by, made
        self.late, self.has_answer = 0.0, False
        needs = job.needs if needs is None else needs
        self.meter = UsageMeter(needs, environment.pools, self, classifiers)
        self.problems: list[str] = []
        self._reserved = list(needs)
        self._usages: list[PoolUsage] = []
        self._usage_by_number: dict[int, PoolUsage] = {}
        self._reports = UsageReports(environment, job)
        self._observations: dict[tuple[PoolKey, bool], Observation] = {}
        self._refused_by_hooks: set[PoolKey] = set()

    def begin(self) -> bool:
        """Records the start of the handler and returns True. Returns False if the handler must not start,
        because its units were reserved too long ago."""
        self.late = max(0.0, self._environment.loop.time() - self._start_by)
        self.call_made = self.call_made or not self.late
        BEGIN_CALL.set(self.meter.begin_call)
        return not self.late

    def missed_start(self, late: float) -> None:
        """Records that a child process did not call the handler, because it would have started `late` seconds
        too late."""
        self.late, self.call_made = late, False

    def used(self, usage: PoolUsage, number: int | None = None) -> None:
        if number is None:
            self._usages.append(usage)
        else:
            self._usage_by_number[number] = usage

    def observe(self, seen: Observation, *, watched: bool = False) -> None:
        """Records limits or a refusal from a provider's response. For each pool and key, only the last limits
        and the last refusal are kept.

        `watched`: True if an HTTP client hook saw the response. A refusal then goes to the pool at once."""
        pool_key = (seen.pool, seen.key)
        if seen.remaining or seen.amounts or seen.refusal is not None:
            self._observations[pool_key, seen.refusal is not None] = seen
        if not watched:
            return
        if seen.refusal is not None:
            self._refused_by_hooks.add(pool_key)
            self._reports.refused(seen)
        else:
            self.has_answer = True
            refused = self._observations.get((pool_key, True))
            if refused is not None and self._reports.knows(refused):
                self._observations.pop((pool_key, True), None)

    def warn(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    def wall(self) -> float:
        return self._environment.wall()

    def left(self) -> float:
        return self._deadline() - self._environment.loop.time()

    async def reserve(self, need: Need) -> float | None:
        loop = self._environment.loop
        if asyncio.get_running_loop() is loop:
            return await self._reserve(need)
        elsewhere = asyncio.run_coroutine_threadsafe(self._reserve(need), loop)
        return await asyncio.wrap_future(elsewhere)

    async def _reserve(self, need: Need) -> float | None:
        job = self._job
        wait = await self._environment.store.reserve(job.id, job.fence, job.claim, need)
        if wait is None:
            self._reserved.append(need)
        return wait

    def now(self) -> float:
        return self._environment.loop.time()

    def late_at(self) -> float:
        return self._start_by

    async def depart(self, need: Need, departure: Departure) -> None:
        self._note_departure(need, departure)
        await self._reports.depart(need, departure)

    def depart_sync(self, need: Need, departure: Departure) -> None:
        self._note_departure(need, departure)
        self._reports.depart_sync(need, departure)

    def departed(self, need: Need, departure: Departure) -> None:
        self._note_departure(need, departure)
        self._reports.departed(need, departure)

    def _note_departure(self, need: Need, departure: Departure) -> None:
        if departure is Departure.EXTRA:
            self._reserved.append(need)

    @property
    def refusals(self) -> list[tuple[Observation, Refusal]]:
        known = list(self._observations.values())  # a copy: other threads add to it
        return [(seen, seen.refusal) for seen in known if seen.refusal is not None]

    def spent(self, outcome: Outcome | None) -> UsageReport:
        """Returns the usage and the provider's answers, for a settlement with `outcome`. The handler may
        still run."""
        unreported = self._reports.take_unreported()
        awaits_dependency = isinstance(outcome, Snooze) and outcome.dependency is not None
        if not self.call_made or (awaits_dependency and not self._has_report):
            return UsageReport(made=False)
        finished = self.has_answer or isinstance(outcome, Success)
        seen = {**unreported, **self._observations}
        answers = [answer for answer in seen.values() if not self._reports.was_reported(answer)]
        refused = bool(self.refusals) or any(answer.refusal is not None for answer in answers)
        return UsageReport(
            is_success=(finished or bool(self._usages)) and not refused,
            usages=tuple(
                self._sum_usage({} if finished else self._refused_usage(), only_reported=awaits_dependency)
            ),
            observations=tuple(answers),
        )

    @property
    def _has_report(self) -> bool:
        return bool(self._usages or self._usage_by_number or self._observations)

    def end(self) -> None:
        """Stops reports to the pools, because the attempt has an outcome. Its code may still run."""
        self._reports.end()

    def _refused_usage(self) -> dict[PoolKey, list[Units]]:
        """Returns the usage of refused calls, by pool and key. A refused call uses one request and no other
        unit.

        These calls are left out:

        - Calls whose reservation covers more than one request.
        - Calls whose answer broke off, because the provider may have counted their tokens.
        - Calls whose refusal an HTTP client hook has already reported."""
        found: dict[PoolKey, list[Units]] = {}
        for seen, refusal in self.refusals:
            needs = [need for need in self._reserved if (need.pool, need.key) == (seen.pool, seen.key)]
            single = all(need.units.get("requests", 1.0) <= 1.0 for need in needs)
            if single and not refusal.broke_off and (seen.pool, seen.key) not in self._refused_by_hooks:
                units = {unit: 0.0 for need in needs for unit in need.units if unit not in IMPLIED}
                found[seen.pool, seen.key] = [units]
        return found

    def _sum_usage(
        self, reported: dict[PoolKey, list[Units]], *, only_reported: bool = False
    ) -> list[PoolUsage]:
        """Returns the total usage of each pool and key with a report. If there are more reservations than
        reports, the largest reservations count as used.

        - `reported`: the usage of refused calls. The handler's reports are added to it.
        - `only_reported`: True if calls without a report were not made. Their units then count as 0."""
        for usage in (*self._usages, *self._usage_by_number.values()):
            reported.setdefault((usage.pool, usage.key), []).append(usage.units)
        reserved: dict[PoolKey, list[Units]] = {}
        for need in self._reserved:
            calls = reserved.setdefault((need.pool, need.key), [])
            calls.extend([need.units] if _covers_call(need) else [])
        if only_reported:
            return [_reported_usage(of, reported.get(of, []), units) for of, units in reserved.items()]
        return [
            PoolUsage(pool=pool, key=key, units=_total_units(reported[pool, key], reserved_units))
            for (pool, key), reserved_units in reserved.items()
            if (pool, key) in reported
        ]


def _covers_call(need: Need) -> bool:
    """False if the need reserves no request and no other unit, so that no call can be charged to it."""
    requests = need.units.get("requests", IMPLIED["requests"])
    return bool(requests or any(units for unit, units in need.units.items() if unit not in IMPLIED))


def _reported_usage(of: PoolKey, reported: list[Units], reserved: list[Units]) -> PoolUsage:
    """Returns the usage of one pool and key, in which every reserved unit without a report counts as 0."""
    total = dict.fromkeys({**IMPLIED, **{unit: 0.0 for units in reserved for unit in units}}, 0.0)
    for units in reported:
        for unit, amount in units.items():
            total[unit] = total.get(unit, 0.0) + amount
    return PoolUsage(pool=of[0], key=of[1], units=total)


def _total_units(reported: list[Units], reserved: list[Units]) -> Units:
    total: Units = {}
    for unit in {unit: None for units in reported for unit in units}:
        amounts = [units[unit] for units in reported if unit in units]
        reserved_units = sorted((units.get(unit, IMPLIED.get(unit, 0.0)) for units in reserved), reverse=True)
        total[unit] = sum(amounts) + sum(reserved_units[: max(0, len(reserved_units) - len(amounts))])
    return total


def _guards_of(settings: PoolSettings | None) -> Guards:
    """Returns the safety margins of a pool, such as its jitter. Returns the defaults for a pool that this
    application does not declare."""
    return Guards() if settings is None else settings.guards
