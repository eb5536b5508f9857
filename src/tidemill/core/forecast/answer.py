"""When which line is done, and what each limit alone would take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from tidemill.core.calendars import Calendar
from tidemill.core.forecast import building
from tidemill.core.forecast.building import Call, Known
from tidemill.core.forecast.lines import QUEUE, SLOTS, Line, Units, Which, Work
from tidemill.core.forecast.meters import Held, Meter, Refilled, Shut
from tidemill.core.forecast.walk import Stage, Walked, walk
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import amount_of

PLACE = tuple[str, str | None]
CLOSED = "closed"
PACE = "pace"
TIED = 20
"""So many lines, or fewer, share the workers' slots call by call; of more, the slots are asked apart."""
MOST_APART = 300
"""Of lines that have nothing to do with each other so many are walked, the longest ones."""


class Crew(msgspec.Struct, frozen=True, kw_only=True):
    """Who works: `slots` of all workers that serve, `taken` of them now; so many jobs of a queue may run
    `at_once`, and are `running`. None is no bound."""

    slots: float | None = None
    taken: float = 0.0
    at_once: Mapping[str, float] = msgspec.field(default_factory=dict)
    running: Mapping[str, float] = msgspec.field(default_factory=dict)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`takes` is how long a call is under way, 0 when nobody knows: then what bounds calls at once is left
    out. `know` finds a pool, None for one nobody declared."""

    lines: Sequence[Line]
    know: Callable[[PLACE], Known | None]
    crew: Crew = Crew()
    takes: float = 0.0


def ends(asked: Asked) -> list[list[float]]:
    """Of every work of every line: seconds until its last call starts, infinite for never."""
    found: list[list[float]] = [[0.0] * len(line.work) for line in asked.lines]
    groups = sorted(_together(asked), key=lambda group: -sum(map(_calls, (asked.lines[i] for i in group))))
    for group in groups[:MOST_APART]:
        lines = [asked.lines[index] for index in group]
        for index, walked in zip(group, _walked(asked, lines), strict=True):
            found[index] = walked
    if len(groups) > 1:
        _share_slots(asked, found)
    return found


def alone(asked: Asked, wanted: Sequence[int]) -> dict[Which, float]:
    """Seconds until the last call of those lines starts, by each limit they meet, if it were the only one."""
    met = _which(asked, [asked.lines[index] for index in wanted])
    found: dict[Which, float] = {}
    for which in met:
        walked = _walked(asked, asked.lines, only=which)
        found[which] = max((end for index in wanted for end in walked[index]), default=0.0)
    return found


def concerned(asked: Asked, wanted: Sequence[int]) -> list[int]:
    """The lines that have something to do with those, and they themselves."""
    return sorted(index for group in _together(asked) if set(group) & set(wanted) for index in group)


def _calls(line: Line) -> float:
    return sum(work.calls for work in line.work)


def _walked(asked: Asked, lines: Sequence[Line], only: Which | None = None) -> list[list[float]]:
    meters = _meters(asked, lines, only)
    walks = [
        Walked([_stage(asked, line, work, meters) for work in line.work], line.priority, line.weight)
        for line in lines
    ]
    walk(walks, meters)
    return [[stage.ended for stage in line.stages] for line in walks]


def _stage(asked: Asked, line: Line, work: Work, meters: Mapping[Which, Meter]) -> Stage:
    units: Units = {which: 1.0 for which in (SLOTS, _queue(line)) if which in meters}
    backs: Units = {}
    for need, known, limit in _limits(asked, work.needs):
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
    calls = _per_call(asked, lines)
    reaches = _reach(asked, lines, calls)
    meters: dict[Which, Meter] = {}
    for which, (known, limit) in _which(asked, lines).items():
        if only not in (None, which):
            continue
        if limit is None or known is None:
            meters[which] = _crew_meter(asked, which)
            continue
        call = msgspec.structs.replace(calls[which], reaches=reaches)
        if made := building.meter(known, limit, call):
            meters[which] = made
        if paced := building.pace(known, limit, call):
            meters[*which[:2], f"{PACE} of {limit.name}"] = paced
        if only is None and (shut := building.shut_until(known, asked.takes)):
            meters[*which[:2], CLOSED] = Shut(shut)
    if only is None:
        meters |= {_opens(line): Shut(line.opens) for line in lines if line.opens > 0}
    return meters


def _which(asked: Asked, lines: Sequence[Line]) -> dict[Which, tuple[Known | None, Limit | None]]:
    """Every limit the lines meet."""
    found: dict[Which, tuple[Known | None, Limit | None]] = {}
    for line in lines:
        for work in line.work:
            for need, known, limit in _limits(asked, work.needs):
                found[need.pool, need.key, limit.name] = (known, limit)
        if asked.takes > 0 and line.queue in asked.crew.at_once:
            found[_queue(line)] = (None, None)
    if asked.takes > 0 and asked.crew.slots is not None and len(asked.lines) <= TIED:
        found[SLOTS] = (None, None)
    return found


def _limits(asked: Asked, needs: Sequence[Need]) -> Iterator[tuple[Need, Known, Limit]]:
    for need in needs:
        known = asked.know((need.pool, need.key))
        for limit in () if known is None else known.settings.limits:
            assert known is not None  # noqa: S101 - or there were no limits
            yield need, known, limit


def _per_call(asked: Asked, lines: Sequence[Line]) -> dict[Which, Call]:
    """What a call takes of each limit, None where calls differ."""
    found: dict[Which, Call] = {}
    for line in lines:
        for work in line.work:
            for need, known, limit in _limits(asked, work.needs):
                which = (need.pool, need.key, limit.name)
                units: float | None = amount_of(need.units, limit) or 0.0
                back = known.settings.back(limit, line.priority)
                if which in found:
                    before = found[which]
                    units = units if units == before.units else None
                    back = min(back, before.back)
                found[which] = Call(units, back, asked.takes, 0.0)
    return found


def _reach(asked: Asked, lines: Sequence[Line], calls: Mapping[Which, Call]) -> float:
    """How long the calls of one stretch take, by the slowest limit; it ends with a calendar's period."""
    stretch, slowest = sum(map(_calls, lines)), math.inf
    for which, (known, limit) in _which(asked, lines).items():
        if limit is None or known is None:
            continue
        call = calls[which]
        if isinstance(limit.per, Calendar) and call.units:
            stretch = min(stretch, limit.amount / call.units)
        slowest = min(slowest, building.flow_of(limit, known.declared.guards.jitter, call))
    return stretch / slowest if slowest > 0 else 0.0


def _crew_meter(asked: Asked, which: Which) -> Meter:
    crew = asked.crew
    amount = crew.slots if which == SLOTS else crew.at_once[which[0]]
    taken = crew.taken if which == SLOTS else crew.running.get(which[0], 0.0)
    total = sum(map(_calls, asked.lines))
    if amount and total / amount > building.STAIRS:
        return Refilled(((0.0, amount),), asked.takes, taken)
    return Held(((0.0, amount or 0.0),), asked.takes, [(0.0, asked.takes, taken)] if taken else [])


def _opens(line: Line) -> Which:
    return (line.queue, f"{line.opens}", CLOSED)


def _queue(line: Line) -> Which:
    return (line.queue, *QUEUE[1:])


def _together(asked: Asked) -> list[list[int]]:
    """Lines that have a limit in common, directly or through others."""
    parents = list(range(len(asked.lines)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = index = parents[parents[index]]
        return index

    owners: dict[Which, int] = {}
    for index, line in enumerate(asked.lines):
        for which in _which(asked, [line]):
            parents[root(index)] = root(owners.setdefault(which, index))
    groups: dict[int, list[int]] = {}
    for index in range(len(parents)):
        groups.setdefault(root(index), []).append(index)
    return list(groups.values())


def _share_slots(asked: Asked, found: list[list[float]]) -> None:
    """Nobody is done before the slots have had time for all calls."""
    slots = asked.crew.slots
    if not slots or asked.takes <= 0 or SLOTS in _which(asked, asked.lines):
        return
    least = sum(map(_calls, asked.lines)) * asked.takes / slots - asked.takes
    for line in found:
        if line:
            line[-1] = max(line[-1], least)
