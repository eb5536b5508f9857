"""Plans when jobs that are not enqueued yet would be done."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.forecast.backlog import CallGroup, Demand, LaneBacklog, MeterKey, PlannedJobs
from tidemill.core.forecast.completion import (
    ForecastRequest,
    completion_times,
    completion_times_by_limit,
    related_backlogs,
)
from tidemill.core.needs import IMPLIED, Units
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import QueueSettings, Retention
from tidemill.errors import ConfigurationError
from tidemill.inspect.forecast_inputs import (
    FindPool,
    StoreSnapshot,
    estimate_calls,
    group_demand,
    load_snapshot,
    mean_job_seconds,
)
from tidemill.inspect.formatting import format_duration, format_quantity, pluralize


class LimitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One limit that applies to the planned jobs.

    - `seconds`: how long the jobs would take if this were the only limit; None means never.
    - `pool`: None if the limit is the workers' slots or a queue's own limit."""

    pool: str | None
    key: str | None
    name: str
    amount: float | None
    zone: str | None
    seconds: float | None

    def __str__(self) -> str:
        what = self.name if self.amount is None else format_quantity(self.amount, self.name)
        owner = "" if self.pool is None else f" of {self.pool}" + (f"/{self.key}" if self.key else "")
        return f"{what}{owner}"


class PlanBlocker(msgspec.Struct, frozen=True):
    """Something that keeps the jobs from starting: a paused queue, a queue without a worker, or a closed
    pool.

    `until` is a wall time; None means until someone acts."""

    what: Literal["queue", "workers", "pool"]
    name: str
    key: str | None = None
    until: float | None = None
    reason: str | None = None

    def told(self, zone: str | None, now: float) -> str:
        if self.what == "workers":
            return f"no worker serves queue {self.name}, and nothing starts until one does"
        is_, end = ("paused", "it is resumed") if self.what == "queue" else ("closed", "a person opens it")
        name = f"{self.name}/{self.key}" if self.key else self.name
        until = end if self.until is None else format_clock_time(self.until, zone, now)
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.what} {name} is {is_} until {until}{why}"


class ShortRetention(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that will delete the first results of the planned jobs before the last job is done.

    - `jobs`: the number of planned jobs.
    - `keeps`: how long, or how many, done jobs the queue keeps."""

    queue: str
    jobs: int
    keeps: Retention

    def __str__(self) -> str:
        return (
            f"queue {self.queue} keeps done jobs {self.keeps.described()}: of "
            f"{pluralize(self.jobs, 'result')} the first are dropped before the last job is done; "
            "raise keep_done"
        )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """When planned jobs would be done. Times are wall times, durations are seconds.

    - `starts_at`, `done_at`, `seconds`: None means never, unless something changes
    - `bottleneck`: the limit that alone takes longest; None if no limit delays the jobs
    - `limits`: every limit that applies, with the time that the jobs would take if it were the only limit
    - `calls`, `units`: the calls of these jobs, and the units they need
    - `ahead`: how many ready jobs of the same lane or the same pools have the same or a more urgent priority
    - `takes`: seconds per call; None if unknown, and then worker slots are not considered
    - `waits`: paused queues, closed pools, and queues without a worker
    - `drops`: queues whose retention deletes results before the last job is done"""

    task: str | None
    count: int
    now: float
    starts_at: float | None
    done_at: float | None
    seconds: float | None
    bottleneck: LimitPlan | None
    limits: tuple[LimitPlan, ...]
    calls: int
    units: Units
    ahead: int
    takes: float | None
    waits: tuple[PlanBlocker, ...]
    drops: tuple[ShortRetention, ...] = ()

    def __str__(self) -> str:
        return "; ".join(self._sentences()) + "."

    def _sentences(self) -> list[str]:
        zone = None if self.bottleneck is None else self.bottleneck.zone
        sentences = [pluralize(self.count, "job") + (f" of {self.task}" if self.task else "")]
        if self.done_at is None or self.seconds is None:
            sentences.append("not done before a person acts")
        else:
            sentences.append(
                f"done {format_clock_time(self.done_at, zone, self.now)}, in {format_duration(self.seconds)}"
            )
        sentences += [wait.told(zone, self.now) for wait in self.waits]
        if self.bottleneck is not None:
            sentences.append(f"bottleneck: {self.bottleneck}")
        return sentences + [str(drop) for drop in self.drops]


def format_clock_time(wall: float, zone: str | None, now: float) -> str:
    """Returns a wall time as text such as `Thu 19 Nov 14:10 PST`; with the year if it is not the year of
    `now`.

    `zone`: a time zone; None is the machine's zone."""
    tz = ZoneInfo(zone) if zone else None
    local, today = (datetime.fromtimestamp(at, UTC).astimezone(tz) for at in (wall, now))
    year = "" if local.year == today.year else f" {local.year}"
    return f"{local:%a} {local.day} {local:%b}{year} {local:%H:%M} {local.tzname()}"


UNITS_NOT_PLANNED = ("jobs", "concurrent")
"""Units that do not count as cost."""


async def compute_plan(
    store: Store,
    planned: Sequence[PlannedJobs],
    takes: float | None,
    declared: Mapping[str, PoolSettings],
    queues: Mapping[str, QueueSettings],
) -> Plan:
    """Returns when the jobs in `planned` would be done. `takes`: seconds per call; None uses the mean of
    recent jobs."""
    snapshot = await load_snapshot(store, declared)
    find_pool = snapshot.known()
    if takes is None:
        takes = await mean_job_seconds(store, planned[0].demand.queue, planned[0].task)
    _check_arguments(planned, takes, find_pool)
    found = _simulate(snapshot, planned, takes, find_pool)
    return replace(found, drops=tuple(_short_retentions(snapshot, planned, found.seconds, queues)))


def _check_arguments(planned: Sequence[PlannedJobs], takes: float | None, find_pool: FindPool) -> None:
    if takes is not None and not (math.isfinite(takes) and takes >= 0):
        raise ConfigurationError(f"takes: must be a number of seconds, 0 or more, is {takes}")
    for group in planned:
        for need in group.demand.needs:
            known = find_pool((need.pool, need.key))
            limits = () if known is None else known.settings.limits
            if takes is None and any(limit.per is None for limit in limits):
                raise ConfigurationError(
                    f"takes: pool {need.pool!r} allows so many calls at once, and no job of {group.task!r} "
                    "is done yet that would show how long one takes; say it: takes=2.5, or --takes 2.5s"
                )


def _simulate(
    snapshot: StoreSnapshot, planned: Sequence[PlannedJobs], takes: float | None, find_pool: FindPool
) -> Plan:
    own, others = _demand_backlogs(snapshot, planned, find_pool)
    backlogs = [*own, *group_demand(snapshot, others, find_pool)]
    worker_capacity = snapshot.worker_capacity([group.demand.queue for group in planned])
    request = ForecastRequest(
        lines=backlogs, know=find_pool, worker_capacity=worker_capacity, call_seconds=takes or 0.0
    )
    related = related_backlogs(request, range(len(own)))
    request = replace(request, lines=[backlogs[index] for index in related])
    positions = {index: position for position, index in enumerate(related)}
    ours = [positions[index] for index in range(len(own))]
    found = completion_times(request)
    done = max(found[index][-1] for index in ours) + (takes or 0.0)
    limits = limit_plans(completion_times_by_limit(request, ours), find_pool)
    call_groups = [
        estimate_calls(group.demand.jobs, group.demand.needs, group.demand.batching, find_pool)
        for group in planned
    ]
    return Plan(
        task=planned[0].task if len({group.task for group in planned}) == 1 else None,
        count=sum(group.demand.jobs for group in planned),
        now=snapshot.now.wall,
        starts_at=_plan_time(snapshot, min(found[index][-2] for index in ours)),
        done_at=_plan_time(snapshot, done),
        seconds=None if math.isinf(done) else done,
        bottleneck=slowest_limit(limits),
        limits=limits,
        calls=round(sum(work.calls for work in call_groups)),
        units=_total_units(call_groups, find_pool),
        ahead=_count_ahead(snapshot, planned),
        takes=takes,
        waits=tuple(_find_blockers(snapshot, planned, find_pool)),
    )


def _short_retentions(
    snapshot: StoreSnapshot,
    planned: Sequence[PlannedJobs],
    seconds: float | None,
    declared: Mapping[str, QueueSettings],
) -> Iterator[ShortRetention]:
    settings = dict(declared) | {info.name: info.settings for info in snapshot.queues}
    jobs: Counter[str] = Counter()
    for group in planned:
        jobs[group.demand.queue] += group.demand.jobs
    for queue, count in jobs.items():
        keeps = settings.get(queue, QueueSettings()).keep_done
        too_many = keeps.count is not None and count > keeps.count
        too_long = keeps.age is not None and seconds is not None and seconds > keeps.age
        if too_many or too_long:
            yield ShortRetention(queue=queue, jobs=count, keeps=keeps)


def _demand_backlogs(
    snapshot: StoreSnapshot, planned: Sequence[PlannedJobs], find_pool: FindPool
) -> tuple[list[LaneBacklog], Sequence[Demand]]:
    """Returns one group of calls per entry of `planned`, and the ready jobs that are in no group.

    A group has the calls of the ready jobs ahead of the entry in its lane, then the calls of the entry. A
    ready job is counted once, for the most urgent entry behind it."""
    order = sorted(range(len(planned)), key=lambda index: (planned[index].demand.priority, index))
    lanes: dict[tuple[str, str], list[Demand]] = {}
    for demand in snapshot.demand:
        lanes.setdefault((demand.queue, demand.lane), []).append(demand)
    backlogs: dict[int, LaneBacklog] = {}
    counted: set[int] = set()
    for index in order:
        ours = planned[index].demand
        lane = lanes.get((ours.queue, ours.lane), [])
        before = [demand for demand in lane if demand.priority <= ours.priority and id(demand) not in counted]
        counted |= set(map(id, before))
        backlogs[index] = _demand_backlog(snapshot, planned[index], before, find_pool)
    left = [demand for demand in snapshot.demand if id(demand) not in counted]
    return [backlogs[index] for index in range(len(planned))], left


def _demand_backlog(
    snapshot: StoreSnapshot, group: PlannedJobs, before: Sequence[Demand], find_pool: FindPool
) -> LaneBacklog:
    """Returns the calls of the jobs `before` the group in its lane, then the calls of the planned jobs
    `group`. The group's first call is an entry of its own."""
    ours = group.demand
    ahead = [estimate_calls(demand.jobs, demand.needs, demand.batching, find_pool) for demand in before]
    work = estimate_calls(ours.jobs, ours.needs, ours.batching, find_pool)
    first, rest = CallGroup(1.0, work.needs), CallGroup(work.calls - 1.0, work.needs)
    begins = group.delay if group.at is None else group.at - snapshot.now.wall
    return LaneBacklog(
        work=(*ahead, first, rest),
        priority=ours.priority,
        weight=snapshot.weight(ours.queue),
        queue=ours.queue,
        opens=max(0.0, begins, snapshot.seconds_until_resumed(ours.queue)),
    )


def limit_plans(seconds: Mapping[MeterKey, float], find_pool: FindPool) -> tuple[LimitPlan, ...]:
    found = []
    for (pool, key, name), took in seconds.items():
        known = find_pool((pool, key))
        limit = (
            None
            if known is None
            else next(known_limit for known_limit in known.settings.limits if known_limit.name == name)
        )
        found.append(
            LimitPlan(
                pool=None if limit is None else pool,
                key=key,
                name=name if limit is not None or not pool else f"{name}, {pool}",
                amount=None if limit is None else limit.amount,
                zone=None if limit is None else getattr(limit.per, "zone", None),
                seconds=None if math.isinf(took) else took,
            )
        )
    return tuple(found)


def slowest_limit(limits: Sequence[LimitPlan]) -> LimitPlan | None:
    found = max(limits, key=lambda limit: math.inf if limit.seconds is None else limit.seconds, default=None)
    return None if found is None or found.seconds == 0 else found


def _total_units(call_groups: Sequence[CallGroup], find_pool: FindPool) -> Units:
    """Returns the units that all calls need together. If a call needs a unit from several pools, the largest
    amount counts."""
    total: Units = {}
    for work in call_groups:
        once: Units = {}
        for need in work.needs:
            known = find_pool((need.pool, need.key))
            counted = set() if known is None else {limit.unit for limit in known.settings.limits}
            for unit, amount in (IMPLIED | need.units).items():
                if unit not in UNITS_NOT_PLANNED and (unit in counted or unit not in IMPLIED):
                    once[unit] = max(once.get(unit, 0.0), amount)
        for unit, amount in once.items():
            total[unit] = total.get(unit, 0.0) + amount * work.calls
    return {unit: round(amount, 6) for unit, amount in total.items()}


def _count_ahead(snapshot: StoreSnapshot, planned: Sequence[PlannedJobs]) -> int:
    """Returns how many ready jobs of the same lane or pool are at least as urgent as the least urgent planned
    job."""
    pool_keys = {(need.pool, need.key) for group in planned for need in group.demand.needs}
    lanes = {(group.demand.queue, group.demand.lane) for group in planned}
    urgent = max(group.demand.priority for group in planned)
    return sum(
        ready.jobs
        for ready in snapshot.demand
        if ready.priority <= urgent
        and (
            (ready.queue, ready.lane) in lanes or pool_keys & {(need.pool, need.key) for need in ready.needs}
        )
    )


def _find_blockers(
    snapshot: StoreSnapshot, planned: Sequence[PlannedJobs], find_pool: FindPool
) -> Iterator[PlanBlocker]:
    """Yields the pauses, closures and missing workers that keep the jobs from starting now."""
    wall = snapshot.now.wall
    for queue in dict.fromkeys(group.demand.queue for group in planned):
        if pause := snapshot.pause(queue):
            yield PlanBlocker("queue", queue, None, pause.until, pause.reason)
        if not snapshot.workers_of([queue]):
            yield PlanBlocker("workers", queue)
    for pool_key in dict.fromkeys((need.pool, need.key) for group in planned for need in group.demand.needs):
        known = find_pool(pool_key)
        by_hand = None if known is None else known.account.closed
        if by_hand is not None and by_hand.holds(wall):
            yield PlanBlocker("pool", *pool_key, by_hand.until, by_hand.reason or f"closed by {by_hand.by}")
        for closure in () if known is None else known.account.breaker.closures:
            if closure.holds(wall):
                yield PlanBlocker("pool", *pool_key, closure.until, closure.reason.value)


def _plan_time(snapshot: StoreSnapshot, seconds: float) -> float | None:
    return None if math.isinf(seconds) else snapshot.now.wall + seconds
