"""When jobs that are not sent yet would be done."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.demand import Demand, Sending
from tidemill.core.forecast.answer import alone, concerned, ends
from tidemill.core.forecast.lines import Line, Which, Work
from tidemill.core.forecast.meeting import Asked
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import QueueSettings
from tidemill.core.units import IMPLIED, Units
from tidemill.errors import ConfigurationError
from tidemill.inspect.backlog import Knows, lines_of, work_of
from tidemill.inspect.plan import LimitPlan, Plan, ShortRetention, Waits
from tidemill.inspect.situation import Situation, look, mean_time

UNTOLD = ("jobs", "concurrent")
"""Units that say nothing of what a plan costs."""


async def plan(
    store: Store,
    sent: Sequence[Sending],
    takes: float | None,
    declared: Mapping[str, PoolSettings],
    queues: Mapping[str, QueueSettings],
) -> Plan:
    """`declared` and `queues` are the pools and queues of the code that asks."""
    situation = await look(store, declared)
    knows = situation.known()
    if takes is None:
        takes = await mean_time(store, sent[0].demand.queue, sent[0].task)
    _check(sent, takes, knows)
    found = _answer(situation, sent, takes, knows)
    return replace(found, drops=tuple(_drops(situation, sent, found.seconds, queues)))


def _check(sent: Sequence[Sending], takes: float | None, knows: Knows) -> None:
    if takes is not None and not (math.isfinite(takes) and takes >= 0):
        raise ConfigurationError(f"takes: must be a number of seconds, 0 or more, is {takes}")
    for each in sent:
        for need in each.demand.needs:
            known = knows((need.pool, need.key))
            limits = () if known is None else known.settings.limits
            if takes is None and any(limit.per is None for limit in limits):
                raise ConfigurationError(
                    f"takes: pool {need.pool!r} allows so many calls at once, and no job of {each.task!r} "
                    "is done yet that would show how long one takes; say it: takes=2.5, or --takes 2.5s"
                )


def _answer(situation: Situation, sent: Sequence[Sending], takes: float | None, knows: Knows) -> Plan:
    own, others = _lines(situation, sent, knows)
    lines = [*own, *lines_of(situation, others, knows)]
    crew = situation.crew([each.demand.queue for each in sent])
    asked = Asked(lines=lines, know=knows, crew=crew, takes=takes or 0.0)
    kept = concerned(asked, range(len(own)))
    asked = replace(asked, lines=[lines[index] for index in kept])
    places = {index: place for place, index in enumerate(kept)}
    ours = [places[index] for index in range(len(own))]
    found = ends(asked)
    done = max(found[index][-1] for index in ours) + (takes or 0.0)
    limits = limits_told(alone(asked, ours), knows)
    works = [work_of(each.demand.jobs, each.demand.needs, each.demand.batching, knows) for each in sent]
    return Plan(
        task=sent[0].task if len({each.task for each in sent}) == 1 else None,
        count=sum(each.demand.jobs for each in sent),
        now=situation.now.wall,
        starts_at=_at(situation, min(found[index][-2] for index in ours)),
        done_at=_at(situation, done),
        seconds=None if math.isinf(done) else done,
        bottleneck=slowest(limits),
        limits=limits,
        calls=round(sum(work.calls for work in works)),
        units=_units(works, knows),
        ahead=_ahead(situation, sent),
        takes=takes,
        waits=tuple(_waits(situation, sent, knows)),
    )


def _drops(
    situation: Situation,
    sent: Sequence[Sending],
    seconds: float | None,
    declared: Mapping[str, QueueSettings],
) -> Iterator[ShortRetention]:
    settings = dict(declared) | {info.name: info.settings for info in situation.queues}
    jobs: Counter[str] = Counter()
    for each in sent:
        jobs[each.demand.queue] += each.demand.jobs
    for queue, count in jobs.items():
        keeps = settings.get(queue, QueueSettings()).keep_done
        too_many = keeps.count is not None and count > keeps.count
        too_long = keeps.age is not None and seconds is not None and seconds > keeps.age
        if too_many or too_long:
            yield ShortRetention(queue=queue, jobs=count, keeps=keeps)


def _lines(
    situation: Situation, sent: Sequence[Sending], knows: Knows
) -> tuple[list[Line], Sequence[Demand]]:
    """A line for each of ours, and the ready jobs that stand before none of them. Who stands before several
    of one lane is counted once, with the most urgent: the others start after that line anyway."""
    order = sorted(range(len(sent)), key=lambda index: (sent[index].demand.priority, index))
    lanes: dict[tuple[str, str], list[Demand]] = {}
    for each in situation.demand:
        lanes.setdefault((each.queue, each.lane), []).append(each)
    lines: dict[int, Line] = {}
    counted: set[int] = set()
    for index in order:
        ours = sent[index].demand
        there = lanes.get((ours.queue, ours.lane), [])
        before = [each for each in there if each.priority <= ours.priority and id(each) not in counted]
        counted |= set(map(id, before))
        lines[index] = _line(situation, sent[index], before, knows)
    left = [each for each in situation.demand if id(each) not in counted]
    return [lines[index] for index in range(len(sent))], left


def _line(situation: Situation, sending: Sending, before: Sequence[Demand], knows: Knows) -> Line:
    """What stands before them in their lane, then the first of them, then the others."""
    ours = sending.demand
    ahead = [work_of(each.jobs, each.needs, each.batching, knows) for each in before]
    work = work_of(ours.jobs, ours.needs, ours.batching, knows)
    first, rest = Work(1.0, work.needs), Work(work.calls - 1.0, work.needs)
    begins = sending.delay if sending.at is None else sending.at - situation.now.wall
    return Line(
        work=(*ahead, first, rest),
        priority=ours.priority,
        weight=situation.weight(ours.queue),
        queue=ours.queue,
        opens=max(0.0, begins, situation.opens(ours.queue)),
    )


def limits_told(seconds: Mapping[Which, float], knows: Knows) -> tuple[LimitPlan, ...]:
    found = []
    for (pool, key, name), took in seconds.items():
        known = knows((pool, key))
        limit = None if known is None else next(each for each in known.settings.limits if each.name == name)
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


def slowest(limits: Sequence[LimitPlan]) -> LimitPlan | None:
    found = max(limits, key=lambda limit: math.inf if limit.seconds is None else limit.seconds, default=None)
    return None if found is None or found.seconds == 0 else found


def _units(works: Sequence[Work], knows: Knows) -> Units:
    """Those a pool of theirs counts or they name; where several pools count alike, what one of them does."""
    total: Units = {}
    for work in works:
        once: Units = {}
        for need in work.needs:
            known = knows((need.pool, need.key))
            counted = set() if known is None else {limit.unit for limit in known.settings.limits}
            for unit, amount in (IMPLIED | need.units).items():
                if unit not in UNTOLD and (unit in counted or unit not in IMPLIED):
                    once[unit] = max(once.get(unit, 0.0), amount)
        for unit, amount in once.items():
            total[unit] = total.get(unit, 0.0) + amount * work.calls
    return {unit: round(amount, 6) for unit, amount in total.items()}


def _ahead(situation: Situation, sent: Sequence[Sending]) -> int:
    """Ready jobs as urgent or more so that stand in the same lane or need one of the same pools."""
    places = {(need.pool, need.key) for each in sent for need in each.demand.needs}
    lanes = {(each.demand.queue, each.demand.lane) for each in sent}
    urgent = max(each.demand.priority for each in sent)
    return sum(
        each.jobs
        for each in situation.demand
        if each.priority <= urgent
        and ((each.queue, each.lane) in lanes or places & {(need.pool, need.key) for need in each.needs})
    )


def _waits(situation: Situation, sent: Sequence[Sending], knows: Knows) -> Iterator[Waits]:
    """What keeps all of it from starting for now."""
    wall = situation.now.wall
    for queue in dict.fromkeys(each.demand.queue for each in sent):
        if pause := situation.pause(queue):
            yield Waits("queue", queue, None, pause.until, pause.reason)
        if not situation.serving([queue]):
            yield Waits("workers", queue)
    for place in dict.fromkeys((need.pool, need.key) for each in sent for need in each.demand.needs):
        known = knows(place)
        by_hand = None if known is None else known.account.closed
        if by_hand is not None and by_hand.holds(wall):
            yield Waits("pool", *place, by_hand.until, by_hand.reason or f"closed by {by_hand.by}")
        for closure in () if known is None else known.account.breaker.closures:
            if closure.holds(wall):
                yield Waits("pool", *place, closure.until, closure.reason.value)


def _at(situation: Situation, seconds: float) -> float | None:
    return None if math.isinf(seconds) else situation.now.wall + seconds
