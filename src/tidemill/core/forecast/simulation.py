"""Simulates a forecast from one change to the next, and shares capacity fairly among backlogs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from tidemill.core.forecast.backlog import MeterKey, MeterUnits
from tidemill.core.forecast.meters import TIME_TOLERANCE_SECONDS, LimitMeter

CALL_TOLERANCE = 1e-9
"""A smaller share of a call counts as nothing."""


class ShareRequest(msgspec.Struct):
    """A backlog's request for a share of the capacity.

    - `most`: how many calls the backlog can use.
    - `units`: by meter, how many units one call takes.
    - `bounds`: by meter, how many units the backlog may take in all.
    - `continues`: True if more calls of the backlog, with different needs, follow these."""

    priority: int
    weight: float
    most: float
    units: MeterUnits
    bounds: Mapping[MeterKey, float]
    continues: bool = False

    def is_satisfied(self, got: float) -> bool:
        return got >= self.most - CALL_TOLERANCE * max(1.0, self.most if math.isfinite(self.most) else 1.0)


def share_fairly(backlogs: Sequence[ShareRequest]) -> list[float]:
    """Returns the share of each backlog, in order, as calls or calls per second. More urgent backlogs get
    their share first. Backlogs of the same priority share by weight."""
    got = [0.0] * len(backlogs)
    taken: MeterUnits = {}
    order = sorted(range(len(backlogs)), key=lambda index: backlogs[index].priority)
    for _, tier in groupby(order, key=lambda index: backlogs[index].priority):
        if not _share_equally(backlogs, list(tier), got, taken):
            break
    return got


def _share_equally(
    backlogs: Sequence[ShareRequest], growing: list[int], got: list[float], taken: MeterUnits
) -> bool:
    growing = [index for index in growing if backlogs[index].most > CALL_TOLERANCE]
    while growing:
        step = min(_growth_bounds(backlogs, growing, got, taken))
        if math.isinf(step):
            for index in growing:
                got[index] = math.inf
            return True
        for index in growing:
            backlog, more = backlogs[index], max(0.0, step) * backlogs[index].weight
            got[index] += more
            for meter_key, units in backlog.units.items():
                taken[meter_key] = taken.get(meter_key, 0.0) + more * units
        if any(backlogs[index].continues and backlogs[index].is_satisfied(got[index]) for index in growing):
            return False
        growing = [index for index in growing if _can_grow(backlogs[index], got[index], taken)]
    return True


def _growth_bounds(
    backlogs: Sequence[ShareRequest], growing: Sequence[int], got: Sequence[float], taken: MeterUnits
) -> Iterator[float]:
    """Yields upper bounds for how far the shares of the `growing` backlogs can still grow, as calls per unit
    of weight."""
    request: MeterUnits = {}
    for index in growing:
        backlog = backlogs[index]
        yield (backlog.most - got[index]) / backlog.weight
        for meter_key, units in backlog.units.items():
            request[meter_key] = request.get(meter_key, 0.0) + units * backlog.weight
    for index in growing:
        for meter_key, bound in backlogs[index].bounds.items():
            if request.get(meter_key, 0.0) > 0 and math.isfinite(bound):
                yield (bound - taken.get(meter_key, 0.0)) / request[meter_key]


def _can_grow(backlog: ShareRequest, got: float, taken: MeterUnits) -> bool:
    if backlog.is_satisfied(got):
        return False
    return all(
        bound - taken.get(meter_key, 0.0) > CALL_TOLERANCE * units
        for meter_key, bound in backlog.bounds.items()
        if (units := backlog.units.get(meter_key, 0.0)) > 0
    )


MAX_CHANGES = 5_000
"""The most changes that are simulated; the rest is extrapolated from the average speed."""


class BacklogStage:
    """A part of a backlog in the simulation: a number of `calls` with the same needs.

    - `units`: by meter, how many units each call takes.
    - `reserves`: by meter, how many units each call must leave for more urgent calls.
    - `left`: how many calls have not started yet.
    - `ended`: when the last call starts, in seconds from now; infinite until known."""

    __slots__ = ("calls", "ended", "left", "reserves", "units")

    def __init__(self, calls: float, units: MeterUnits, reserves: MeterUnits) -> None:
        self.calls = self.left = calls
        self.units, self.reserves = units, reserves
        self.ended = math.inf


class RunningBacklog:
    """A backlog during the simulation. It consists of stages, and only the first unfinished stage makes
    calls."""

    def __init__(self, stages: Sequence[BacklogStage], priority: int, weight: float) -> None:
        self.stages, self.priority, self.weight = list(stages), priority, weight
        self._at = 0

    @property
    def stage(self) -> BacklogStage | None:
        return self.stages[self._at] if self._at < len(self.stages) else None

    @property
    def continues(self) -> bool:
        return self._at + 1 < len(self.stages)

    def end_stages(self, now: float) -> bool:
        """Records `now` as the end of every stage that has just finished. Returns True if a stage
        finished."""
        before = self._at
        while (stage := self.stage) is not None and stage.left <= CALL_TOLERANCE * max(1.0, stage.calls):
            stage.ended = now
            self._at += 1
        return self._at > before


def simulate(backlogs: Sequence[RunningBacklog], meters: Mapping[MeterKey, LimitMeter]) -> None:
    """Simulates when the calls of all backlogs start. The calls take their units from `meters`. Sets `ended`
    of every stage."""
    now = 0.0
    for _ in range(MAX_CHANGES):
        for meter in meters.values():
            meter.advance(now)
        while _start_at_once(backlogs, meters, now):
            pass
        moving = [backlog for backlog in backlogs if backlog.stage is not None]
        if not moving:
            return
        rates = _call_rates(moving, meters)
        step = _next_change(moving, rates, meters, now)
        if math.isinf(step):
            return
        _take_units(moving, [rate * step for rate in rates], meters, now + step)
        now += step
    _extrapolate(backlogs, now)


def _start_at_once(
    backlogs: Sequence[RunningBacklog], meters: Mapping[MeterKey, LimitMeter], now: float
) -> bool:
    """Starts the calls for which the meters have enough free units. Returns True if a stage finished."""
    done = [backlog.end_stages(now) for backlog in backlogs]
    moving = [backlog for backlog in backlogs if backlog.stage is not None]
    rooms = {meter_key: meter.room() for meter_key, meter in meters.items()}
    requests = [_share_request(backlog, rooms) for backlog in moving]
    _take_units(moving, share_fairly(requests), meters, now)
    return any([*done, *(backlog.end_stages(now) for backlog in moving)])


def _share_request(backlog: RunningBacklog, rooms: MeterUnits) -> ShareRequest:
    stage = backlog.stage
    assert stage is not None  # noqa: S101 - only backlogs that move are asked
    bounds = {
        meter_key: max(0.0, rooms[meter_key] - stage.reserves.get(meter_key, 0.0))
        for meter_key, units in stage.units.items()
        if units > 0
    }
    return ShareRequest(backlog.priority, backlog.weight, stage.left, stage.units, bounds, backlog.continues)


def _call_rates(moving: Sequence[RunningBacklog], meters: Mapping[MeterKey, LimitMeter]) -> list[float]:
    """Returns the calls per second of each backlog. Only meters without free units limit the rate."""
    rooms = {meter_key: meter.room() for meter_key, meter in meters.items()}
    inflows = {meter_key: meter.inflow() for meter_key, meter in meters.items()}
    requests = []
    for backlog in moving:
        request = _share_request(backlog, rooms)
        request.most = math.inf
        request.bounds = {
            key: math.inf if bound > TIME_TOLERANCE_SECONDS * request.units[key] else inflows[key]
            for key, bound in request.bounds.items()
        }
        requests.append(request)
    return share_fairly(requests)


def _next_change(
    moving: Sequence[RunningBacklog],
    rates: Sequence[float],
    meters: Mapping[MeterKey, LimitMeter],
    now: float,
) -> float:
    used = {
        meter_key
        for backlog in moving
        if backlog.stage
        for meter_key, units in backlog.stage.units.items()
        if units > 0
    }
    changes = [meters[meter_key].next_change() - now for meter_key in used]
    changes += _empty_times(moving, rates, meters)
    for backlog, rate in zip(moving, rates, strict=True):
        if rate > 0 and backlog.stage is not None:
            changes.append(backlog.stage.left / rate)
    return max(min(changes, default=math.inf), TIME_TOLERANCE_SECONDS)


def _empty_times(
    moving: Sequence[RunningBacklog], rates: Sequence[float], meters: Mapping[MeterKey, LimitMeter]
) -> Iterator[float]:
    """For each meter with free units, yields the seconds until it is used up at the given `rates`."""
    flows: MeterUnits = {}
    for backlog, rate in zip(moving, rates, strict=True):
        for meter_key, units in backlog.stage.units.items() if backlog.stage else ():
            flows[meter_key] = flows.get(meter_key, 0.0) + rate * units
    rooms = {meter_key: meters[meter_key].room() for meter_key in flows}
    for backlog in moving:
        request = _share_request(backlog, rooms)
        for meter_key, bound in request.bounds.items():
            net = flows[meter_key] - meters[meter_key].inflow()
            if bound > TIME_TOLERANCE_SECONDS * request.units[meter_key] and net > CALL_TOLERANCE:
                yield bound / net


def _take_units(
    moving: Sequence[RunningBacklog],
    calls: Sequence[float],
    meters: Mapping[MeterKey, LimitMeter],
    until: float,
) -> None:
    """Takes the units for a number of `calls` of each backlog from the meters, spread evenly until the time
    `until`."""
    total: MeterUnits = {}
    for backlog, started in zip(moving, calls, strict=True):
        stage = backlog.stage
        if stage is None or started <= 0:
            continue
        made = min(started, stage.left)
        stage.left -= made
        for meter_key, units in stage.units.items():
            total[meter_key] = total.get(meter_key, 0.0) + made * units
    for meter_key, units in total.items():
        if units > 0:
            meters[meter_key].take(units, until)


def _extrapolate(backlogs: Sequence[RunningBacklog], now: float) -> None:
    """Sets the end of every unfinished stage from the average speed of its backlog. Used when a simulation
    has too many changes."""
    for backlog in backlogs:
        done = sum(stage.calls - stage.left for stage in backlog.stages)
        pace = now / done if done > 0 else math.inf
        for stage in backlog.stages:
            if stage.left > 0:
                done += stage.left
                stage.ended = done * pace
