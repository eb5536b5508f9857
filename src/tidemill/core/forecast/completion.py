"""Calculates when each backlog is done, and how long each limit alone would take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from tidemill.core.calendars import Calendar
from tidemill.core.forecast import pool_outlook
from tidemill.core.forecast.backlog import (
    QUEUE_METER,
    SLOTS_METER,
    CallGroup,
    LaneBacklog,
    MeterKey,
    MeterUnits,
)
from tidemill.core.forecast.meters import BucketMeter, ClosedMeter, LimitMeter, WindowMeter
from tidemill.core.forecast.pool_outlook import CallCost, PoolOutlook, closed_seconds
from tidemill.core.forecast.simulation import BacklogStage, RunningBacklog, simulate
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import call_amount

PoolKey = tuple[str, str | None]
MAX_BACKLOGS_SHARING_SLOTS = 20
"""Up to this many backlogs share the workers' slots call by call; with more, the slots are checked
separately."""


class WorkerCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs can run at the same time.

    - `slots`: the slots of all workers, None for no bound.
    - `taken`: how many slots are in use now.
    - `at_once`: by queue, how many jobs may run at the same time; a missing queue has no bound.
    - `running`: by queue, how many jobs run now."""

    slots: float | None = None
    taken: float = 0.0
    at_once: Mapping[str, float] = msgspec.field(default_factory=dict)
    running: Mapping[str, float] = msgspec.field(default_factory=dict)


class ForecastRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a forecast.

    - `lines`: the backlogs.
    - `know`: returns the outlook of a pool, or of one key of it; None for an undeclared pool.
    - `call_seconds`: how long a call takes. If it is 0 (unknown), limits on concurrency are ignored."""

    lines: Sequence[LaneBacklog]
    know: Callable[[PoolKey], PoolOutlook | None]
    worker_capacity: WorkerCapacity = WorkerCapacity()
    call_seconds: float = 0.0


def call_count(backlog: LaneBacklog) -> float:
    return sum(work.calls for work in backlog.work)


def limits_met(
    request: ForecastRequest, backlogs: Sequence[LaneBacklog]
) -> dict[MeterKey, tuple[PoolOutlook | None, Limit | None]]:
    """Returns the limits that apply to the backlogs: by meter, the pool's outlook and the limit. Both are
    None for slots and queue limits."""
    found: dict[MeterKey, tuple[PoolOutlook | None, Limit | None]] = {}
    for backlog in backlogs:
        for work in backlog.work:
            for need, known, limit in limits_of_needs(request, work.needs):
                found[need.pool, need.key, limit.name] = (known, limit)
        if request.call_seconds > 0 and backlog.queue in request.worker_capacity.at_once:
            found[queue_meter(backlog)] = (None, None)
    shares_slots = len(request.lines) <= MAX_BACKLOGS_SHARING_SLOTS
    if request.call_seconds > 0 and request.worker_capacity.slots is not None and shares_slots:
        found[SLOTS_METER] = (None, None)
    return found


def limits_of_needs(
    request: ForecastRequest, needs: Sequence[Need]
) -> Iterator[tuple[Need, PoolOutlook, Limit]]:
    for need in needs:
        known = request.know((need.pool, need.key))
        for limit in () if known is None else known.settings.limits:
            assert known is not None  # noqa: S101 - otherwise there were no limits
            yield need, known, limit


def cost_per_limit(request: ForecastRequest, backlogs: Sequence[LaneBacklog]) -> dict[MeterKey, CallCost]:
    """Returns the cost of one call for each limit. `CallCost.units` is None if the calls differ."""
    found: dict[MeterKey, CallCost] = {}
    for backlog in backlogs:
        for work in backlog.work:
            for need, known, limit in limits_of_needs(request, work.needs):
                meter_key = (need.pool, need.key, limit.name)
                units: float | None = call_amount(need.units, limit) or 0.0
                back = known.settings.back(limit, backlog.priority)
                if meter_key in found:
                    before = found[meter_key]
                    units = units if units == before.units else None
                    back = min(back, before.back)
                found[meter_key] = CallCost(units, back, request.call_seconds, 0.0)
    return found


def forecast_seconds(
    request: ForecastRequest, backlogs: Sequence[LaneBacklog], calls: Mapping[MeterKey, CallCost]
) -> float:
    """Returns how many seconds the slowest limit in `calls` needs for all calls of the backlogs. With a
    calendar limit, at most the calls of one period count."""
    limits = [
        (calls[meter_key], known, limit)
        for meter_key, (known, limit) in limits_met(request, backlogs).items()
        if meter_key in calls
    ]
    stretch = sum(map(call_count, backlogs))
    for call, _, limit in limits:
        if limit is not None and isinstance(limit.per, Calendar) and call.units:
            stretch = min(stretch, limit.amount / call.units)
    return max(
        (
            pool_outlook.limit_seconds(limit, known.declared.guards.jitter, stretch, call)
            for call, known, limit in limits
            if known is not None and limit is not None
        ),
        default=0.0,
    )


def queue_meter(backlog: LaneBacklog) -> MeterKey:
    return (backlog.queue, *QUEUE_METER[1:])


def related_groups(request: ForecastRequest) -> list[list[int]]:
    """Returns lists of backlog indexes. Backlogs are in the same list if they share a limit, directly or
    through further backlogs."""
    parents = list(range(len(request.lines)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = index = parents[parents[index]]
        return index

    owners: dict[MeterKey, int] = {}
    for index, backlog in enumerate(request.lines):
        for meter_key in limits_met(request, [backlog]):
            parents[root(index)] = root(owners.setdefault(meter_key, index))
    groups: dict[int, list[int]] = {}
    for index in range(len(parents)):
        groups.setdefault(root(index), []).append(index)
    return list(groups.values())


CLOSED_METER = "closed"
PACE_METER = "pace"
MAX_INDEPENDENT_GROUPS = 300
"""The most unrelated groups of backlogs that are simulated, the longest first."""


def completion_times(request: ForecastRequest) -> list[list[float]]:
    """Returns a list for every backlog, with one number for each of its call groups: the seconds until the
    last call of the group starts. Infinite means never."""
    found: list[list[float]] = [[0.0] * len(backlog.work) for backlog in request.lines]
    groups = sorted(
        related_groups(request), key=lambda group: -sum(map(call_count, (request.lines[i] for i in group)))
    )
    for group in groups[:MAX_INDEPENDENT_GROUPS]:
        backlogs = [request.lines[index] for index in group]
        for index, end_times in zip(group, _simulate(request, backlogs), strict=True):
            found[index] = end_times
    if len(groups) > 1:
        _share_slots(request, found)
    return found


def completion_times_by_limit(request: ForecastRequest, indexes: Sequence[int]) -> dict[MeterKey, float]:
    """Returns, for each limit, the seconds until the last call of the backlogs `indexes` starts, as if this
    limit were the only one."""
    by_limit: dict[MeterKey, list[int]] = {}
    for index, backlog in enumerate(request.lines):
        for meter_key in limits_met(request, [backlog]):
            by_limit.setdefault(meter_key, []).append(index)
    found: dict[MeterKey, float] = {}
    ours = set(indexes)
    for meter_key in limits_met(request, [request.lines[index] for index in indexes]):
        end_times = _simulate(
            request, [request.lines[index] for index in by_limit[meter_key]], only=meter_key
        )
        ended = [
            end
            for index, end_times in zip(by_limit[meter_key], end_times, strict=True)
            if index in ours
            for end in end_times
        ]
        found[meter_key] = max(ended, default=0.0)
    return found


def related_backlogs(request: ForecastRequest, indexes: Sequence[int]) -> list[int]:
    """Returns the sorted indexes of the backlogs `indexes` and of all backlogs related to them. Related
    backlogs share a limit, directly or through further backlogs."""
    ours = set(indexes)
    return sorted(index for group in related_groups(request) if not ours.isdisjoint(group) for index in group)


def _simulate(
    request: ForecastRequest, backlogs: Sequence[LaneBacklog], only: MeterKey | None = None
) -> list[list[float]]:
    meters = _meters_of(request, backlogs, only)
    running = [
        RunningBacklog(
            [_stage_of(request, backlog, work, meters) for work in backlog.work],
            backlog.priority,
            backlog.weight,
        )
        for backlog in backlogs
    ]
    simulate(running, meters)
    return [[stage.ended for stage in backlog.stages] for backlog in running]


def _stage_of(
    request: ForecastRequest, backlog: LaneBacklog, work: CallGroup, meters: Mapping[MeterKey, LimitMeter]
) -> BacklogStage:
    units: MeterUnits = {
        meter_key: 1.0 for meter_key in (SLOTS_METER, queue_meter(backlog)) if meter_key in meters
    }
    backs: MeterUnits = {}
    for need, known, limit in limits_of_needs(request, work.needs):
        meter_key = (need.pool, need.key, limit.name)
        amount = call_amount(need.units, limit) or 0.0
        for name in (meter_key, (*meter_key[:2], f"{PACE_METER} of {limit.name}")):
            if name in meters:
                units[name] = amount
        backs[meter_key] = known.settings.back(limit, backlog.priority)
        if (closed := (need.pool, need.key, CLOSED_METER)) in meters:
            units[closed] = 1.0
    if (opens := _opening_key(backlog)) in meters:
        units[opens] = 1.0
    return BacklogStage(work.calls, units, backs)


def _meters_of(
    request: ForecastRequest, backlogs: Sequence[LaneBacklog], only: MeterKey | None
) -> dict[MeterKey, LimitMeter]:
    calls = cost_per_limit(request, backlogs)
    reaches = forecast_seconds(
        request, backlogs, {meter_key: calls[meter_key] for meter_key in calls if only in (None, meter_key)}
    )
    meters: dict[MeterKey, LimitMeter] = {}
    for meter_key, (known, limit) in limits_met(request, backlogs).items():
        if only not in (None, meter_key):
            continue
        if limit is None or known is None:
            meters[meter_key] = _worker_meter(request, meter_key)
            continue
        call = replace(calls[meter_key], reaches=reaches)
        if made := pool_outlook.limit_meter(known, limit, call):
            meters[meter_key] = made
        if paced := pool_outlook.pace_meter(known, limit, call):
            meters[*meter_key[:2], f"{PACE_METER} of {limit.name}"] = paced
        if only is None and (closed_for := closed_seconds(known, request.call_seconds)):
            meters[*meter_key[:2], CLOSED_METER] = ClosedMeter(closed_for)
    if only is None:
        meters |= {
            _opening_key(backlog): ClosedMeter(backlog.opens) for backlog in backlogs if backlog.opens > 0
        }
    return meters


def _worker_meter(request: ForecastRequest, meter_key: MeterKey) -> LimitMeter:
    worker_capacity = request.worker_capacity
    amount = worker_capacity.slots if meter_key == SLOTS_METER else worker_capacity.at_once[meter_key[0]]
    taken = (
        worker_capacity.taken if meter_key == SLOTS_METER else worker_capacity.running.get(meter_key[0], 0.0)
    )
    total = sum(map(call_count, request.lines))
    if amount and total / amount > pool_outlook.MAX_WINDOWS_IN_STEPS:
        return BucketMeter(((0.0, amount),), request.call_seconds, taken)
    return WindowMeter(
        ((0.0, amount or 0.0),), request.call_seconds, [(0.0, request.call_seconds, taken)] if taken else []
    )


def _opening_key(backlog: LaneBacklog) -> MeterKey:
    return (backlog.queue, f"{backlog.opens}", CLOSED_METER)


def _share_slots(request: ForecastRequest, found: list[list[float]]) -> None:
    """Corrects `found` for the number of worker slots. No backlog ends before the slots have had time for all
    calls of all backlogs."""
    slots = request.worker_capacity.slots
    if not slots or request.call_seconds <= 0 or SLOTS_METER in limits_met(request, request.lines):
        return
    least = sum(map(call_count, request.lines)) * request.call_seconds / slots - request.call_seconds
    for backlog in found:
        if backlog:
            backlog[-1] = max(backlog[-1], least)
