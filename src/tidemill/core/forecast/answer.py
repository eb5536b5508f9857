"""When which line is done, and what each limit alone would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tidemill.core.forecast import building
from tidemill.core.forecast.known import shut_until
from tidemill.core.forecast.lines import SLOTS, Line, Units, Which, Work
from tidemill.core.forecast.meeting import (
    Asked,
    calls_of,
    limits_of,
    met_by,
    per_call,
    queue_of,
    reach,
    together,
)
from tidemill.core.forecast.meters import Held, Meter, Refilled, Shut
from tidemill.core.forecast.walk import Stage, Walked, walk
from tidemill.core.pools import amount_of

CLOSED = "closed"
PACE = "pace"
MOST_APART = 300
"""Of lines that have nothing to do with each other so many are walked, the longest ones."""


def ends(asked: Asked) -> list[list[float]]:
    """Of every work of every line: seconds until its last call starts, infinite for never."""
    found: list[list[float]] = [[0.0] * len(line.work) for line in asked.lines]
    groups = sorted(together(asked), key=lambda group: -sum(map(calls_of, (asked.lines[i] for i in group))))
    for group in groups[:MOST_APART]:
        lines = [asked.lines[index] for index in group]
        for index, walked in zip(group, _walked(asked, lines), strict=True):
            found[index] = walked
    if len(groups) > 1:
        _share_slots(asked, found)
    return found


def alone(asked: Asked, wanted: Sequence[int]) -> dict[Which, float]:
    """Seconds until the last call of those lines starts, by each limit they meet, if it were the only one."""
    by_limit: dict[Which, list[int]] = {}
    for index, line in enumerate(asked.lines):
        for which in met_by(asked, [line]):
            by_limit.setdefault(which, []).append(index)
    found: dict[Which, float] = {}
    ours = set(wanted)
    for which in met_by(asked, [asked.lines[index] for index in wanted]):
        walked = _walked(asked, [asked.lines[index] for index in by_limit[which]], only=which)
        ended = [
            end for index, ends in zip(by_limit[which], walked, strict=True) if index in ours for end in ends
        ]
        found[which] = max(ended, default=0.0)
    return found


def concerned(asked: Asked, wanted: Sequence[int]) -> list[int]:
    """The lines that have something to do with those, and they themselves."""
    ours = set(wanted)
    return sorted(index for group in together(asked) if not ours.isdisjoint(group) for index in group)


def _walked(asked: Asked, lines: Sequence[Line], only: Which | None = None) -> list[list[float]]:
    meters = _meters(asked, lines, only)
    walks = [
        Walked([_stage(asked, line, work, meters) for work in line.work], line.priority, line.weight)
        for line in lines
    ]
    walk(walks, meters)
    return [[stage.ended for stage in line.stages] for line in walks]


def _stage(asked: Asked, line: Line, work: Work, meters: Mapping[Which, Meter]) -> Stage:
    units: Units = {which: 1.0 for which in (SLOTS, queue_of(line)) if which in meters}
    backs: Units = {}
    for need, known, limit in limits_of(asked, work.needs):
        which = (need.pool, need.key, limit.name)
        amount = amount_of(need.units, limit) or 0.0
        for name in (which, (*which[:2], f"{PACE} of {limit.name}")):
            if name in meters:
                units[name] = amount
        backs[which] = known.settings.back(limit, line.priority)
        if (closed := (need.pool, need.key, CLOSED)) in meters:
            units[closed] = 1.0
    if (opens := _opens(line)) in meters:
        units[opens] = 1.0
    return Stage(work.calls, units, backs)


def _meters(asked: Asked, lines: Sequence[Line], only: Which | None) -> dict[Which, Meter]:
    calls = per_call(asked, lines)
    reaches = reach(asked, lines, {which: calls[which] for which in calls if only in (None, which)})
    meters: dict[Which, Meter] = {}
    for which, (known, limit) in met_by(asked, lines).items():
        if only not in (None, which):
            continue
        if limit is None or known is None:
            meters[which] = _crew_meter(asked, which)
            continue
        call = replace(calls[which], reaches=reaches)
        if made := building.meter(known, limit, call):
            meters[which] = made
        if paced := building.pace(known, limit, call):
            meters[*which[:2], f"{PACE} of {limit.name}"] = paced
        if only is None and (shut := shut_until(known, asked.takes)):
            meters[*which[:2], CLOSED] = Shut(shut)
    if only is None:
        meters |= {_opens(line): Shut(line.opens) for line in lines if line.opens > 0}
    return meters


def _crew_meter(asked: Asked, which: Which) -> Meter:
    crew = asked.crew
    amount = crew.slots if which == SLOTS else crew.at_once[which[0]]
    taken = crew.taken if which == SLOTS else crew.running.get(which[0], 0.0)
    total = sum(map(calls_of, asked.lines))
    if amount and total / amount > building.STAIRS:
        return Refilled(((0.0, amount),), asked.takes, taken)
    return Held(((0.0, amount or 0.0),), asked.takes, [(0.0, asked.takes, taken)] if taken else [])


def _opens(line: Line) -> Which:
    return (line.queue, f"{line.opens}", CLOSED)


def _share_slots(asked: Asked, found: list[list[float]]) -> None:
    """Nobody is done before the slots have had time for all calls."""
    slots = asked.crew.slots
    if not slots or asked.takes <= 0 or SLOTS in met_by(asked, asked.lines):
        return
    least = sum(map(calls_of, asked.lines)) * asked.takes / slots - asked.takes
    for line in found:
        if line:
            line[-1] = max(line[-1], least)
