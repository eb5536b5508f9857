"""From one change to the next, until everything is done."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from tidemill.core.forecast.filling import ENOUGH, Wanting, fill
from tidemill.core.forecast.lines import Units, Which
from tidemill.core.forecast.meters import SOON, Meter

MOST_CHANGES = 5_000
"""So many changes are looked at; the rest is taken to go on as fast as all of it did on average."""


class Stage:
    """So many calls, with what each takes of every meter, and what it must leave alone in them."""

    __slots__ = ("backs", "calls", "ended", "left", "units")

    def __init__(self, calls: float, units: Units, backs: Units) -> None:
        self.calls = self.left = calls
        self.units, self.backs = units, backs
        self.ended = math.inf


class Walked:
    """A line under way: its first stage that is not done is the one that moves."""

    def __init__(self, stages: Sequence[Stage], priority: int, weight: float) -> None:
        self.stages, self.priority, self.weight = list(stages), priority, weight
        self._at = 0

    @property
    def stage(self) -> Stage | None:
        return self.stages[self._at] if self._at < len(self.stages) else None

    @property
    def goes_on(self) -> bool:
        return self._at + 1 < len(self.stages)

    def go_on(self, now: float) -> bool:
        """Whether a stage was done."""
        before = self._at
        while (stage := self.stage) is not None and stage.left <= ENOUGH * max(1.0, stage.calls):
            stage.ended = now
            self._at += 1
        return self._at > before


def walk(lines: Sequence[Walked], meters: Mapping[Which, Meter]) -> None:
    """Every stage learns when its last call starts; never stays infinite."""
    now = 0.0
    for _ in range(MOST_CHANGES):
        for meter in meters.values():
            meter.advance(now)
        while _burst(lines, meters, now):
            pass
        moving = [line for line in lines if line.stage is not None]
        if not moving:
            return
        rates = _rates(moving, meters)
        step = _next_change(moving, rates, meters, now)
        if math.isinf(step):
            return
        _take(moving, [rate * step for rate in rates], meters, now + step)
        now += step
    _go_on_alike(lines, now)


def _burst(lines: Sequence[Walked], meters: Mapping[Which, Meter], now: float) -> bool:
    """What can start at once. Whether a stage was done by it, and the next may go on."""
    done = [line.go_on(now) for line in lines]
    moving = [line for line in lines if line.stage is not None]
    rooms = {which: meter.room() for which, meter in meters.items()}
    wanting = [_wanting(line, rooms) for line in moving]
    _take(moving, fill(wanting), meters, now)
    return any([*done, *(line.go_on(now) for line in moving)])


def _wanting(line: Walked, rooms: Units) -> Wanting:
    stage = line.stage
    assert stage is not None  # noqa: S101 - only lines that move are asked
    bounds = {
        which: max(0.0, rooms[which] - stage.backs.get(which, 0.0))
        for which, units in stage.units.items()
        if units > 0
    }
    return Wanting(line.priority, line.weight, stage.left, stage.units, bounds, line.goes_on)


def _rates(moving: Sequence[Walked], meters: Mapping[Which, Meter]) -> list[float]:
    """Calls a second: a meter with nothing left passes on what comes in, one with room is no bound."""
    rooms = {which: meter.room() for which, meter in meters.items()}
    inflows = {which: meter.inflow() for which, meter in meters.items()}
    wanting = []
    for line in moving:
        asked = _wanting(line, rooms)
        asked.most = math.inf
        asked.bounds = {
            which: math.inf if bound > SOON * asked.units[which] else inflows[which]
            for which, bound in asked.bounds.items()
        }
        wanting.append(asked)
    return fill(wanting)


def _next_change(
    moving: Sequence[Walked], rates: Sequence[float], meters: Mapping[Which, Meter], now: float
) -> float:
    used = {which for line in moving if line.stage for which, units in line.stage.units.items() if units > 0}
    changes = [meters[which].turns() - now for which in used]
    changes += _runs_dry(moving, rates, meters)
    for line, rate in zip(moving, rates, strict=True):
        if rate > 0 and line.stage is not None:
            changes.append(line.stage.left / rate)
    return max(min(changes, default=math.inf), SOON)


def _runs_dry(
    moving: Sequence[Walked], rates: Sequence[float], meters: Mapping[Which, Meter]
) -> Iterator[float]:
    """When a meter that had room has none any more."""
    flows: Units = {}
    for line, rate in zip(moving, rates, strict=True):
        for which, units in line.stage.units.items() if line.stage else ():
            flows[which] = flows.get(which, 0.0) + rate * units
    rooms = {which: meters[which].room() for which in flows}
    for line in moving:
        asked = _wanting(line, rooms)
        for which, bound in asked.bounds.items():
            net = flows[which] - meters[which].inflow()
            if bound > SOON * asked.units[which] and net > ENOUGH:
                yield bound / net


def _take(
    moving: Sequence[Walked], calls: Sequence[float], meters: Mapping[Which, Meter], until: float
) -> None:
    """So many calls of each line, evenly until then."""
    total: Units = {}
    for line, wanted in zip(moving, calls, strict=True):
        stage = line.stage
        if stage is None or wanted <= 0:
            continue
        made = min(wanted, stage.left)
        stage.left -= made
        for which, units in stage.units.items():
            total[which] = total.get(which, 0.0) + made * units
    for which, units in total.items():
        if units > 0:
            meters[which].take(units, until)


def _go_on_alike(lines: Sequence[Walked], now: float) -> None:
    """It took too many changes: the rest of each line goes on as the line did until now."""
    for line in lines:
        done = sum(stage.calls - stage.left for stage in line.stages)
        pace = now / done if done > 0 else math.inf
        for stage in line.stages:
            if stage.left > 0:
                done += stage.left
                stage.ended = done * pace
