"""Which limits lines of calls meet, and which lines have one in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from tidemill.core.calendars import Calendar
from tidemill.core.forecast import building
from tidemill.core.forecast.building import Call
from tidemill.core.forecast.known import Known
from tidemill.core.forecast.lines import QUEUE, SLOTS, Line, Which
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import amount_of

PLACE = tuple[str, str | None]
TIED = 20
"""So many lines, or fewer, share the workers' slots call by call; of more, the slots are asked apart."""


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


def calls_of(line: Line) -> float:
    return sum(work.calls for work in line.work)


def met_by(asked: Asked, lines: Sequence[Line]) -> dict[Which, tuple[Known | None, Limit | None]]:
    """Every limit the lines meet."""
    found: dict[Which, tuple[Known | None, Limit | None]] = {}
    for line in lines:
        for work in line.work:
            for need, known, limit in limits_of(asked, work.needs):
                found[need.pool, need.key, limit.name] = (known, limit)
        if asked.takes > 0 and line.queue in asked.crew.at_once:
            found[queue_of(line)] = (None, None)
    if asked.takes > 0 and asked.crew.slots is not None and len(asked.lines) <= TIED:
        found[SLOTS] = (None, None)
    return found


def limits_of(asked: Asked, needs: Sequence[Need]) -> Iterator[tuple[Need, Known, Limit]]:
    for need in needs:
        known = asked.know((need.pool, need.key))
        for limit in () if known is None else known.settings.limits:
            assert known is not None  # noqa: S101 - or there were no limits
            yield need, known, limit


def per_call(asked: Asked, lines: Sequence[Line]) -> dict[Which, Call]:
    """What a call takes of each limit, None where calls differ."""
    found: dict[Which, Call] = {}
    for line in lines:
        for work in line.work:
            for need, known, limit in limits_of(asked, work.needs):
                which = (need.pool, need.key, limit.name)
                units: float | None = amount_of(need.units, limit) or 0.0
                back = known.settings.back(limit, line.priority)
                if which in found:
                    before = found[which]
                    units = units if units == before.units else None
                    back = min(back, before.back)
                found[which] = Call(units, back, asked.takes, 0.0)
    return found


def reach(asked: Asked, lines: Sequence[Line], calls: Mapping[Which, Call]) -> float:
    """How long the calls of one stretch take, by the slowest of the limits in `calls`; a stretch ends with a
    calendar's period."""
    limits = [
        (calls[which], known, limit)
        for which, (known, limit) in met_by(asked, lines).items()
        if which in calls
    ]
    stretch = sum(map(calls_of, lines))
    for call, _, limit in limits:
        if limit is not None and isinstance(limit.per, Calendar) and call.units:
            stretch = min(stretch, limit.amount / call.units)
    return max(
        (
            building.lasts(limit, known.declared.guards.jitter, stretch, call)
            for call, known, limit in limits
            if known is not None and limit is not None
        ),
        default=0.0,
    )


def queue_of(line: Line) -> Which:
    return (line.queue, *QUEUE[1:])


def together(asked: Asked) -> list[list[int]]:
    """Lines that have a limit in common, directly or through others."""
    parents = list(range(len(asked.lines)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = index = parents[parents[index]]
        return index

    owners: dict[Which, int] = {}
    for index, line in enumerate(asked.lines):
        for which in met_by(asked, [line]):
            parents[root(index)] = root(owners.setdefault(which, index))
    groups: dict[int, list[int]] = {}
    for index in range(len(parents)):
        groups.setdefault(root(index), []).append(index)
    return list(groups.values())
